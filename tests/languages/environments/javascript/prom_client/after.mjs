import assert from 'node:assert/strict';
import { register } from 'prom-client';

const lock = gate.mutex('metrics');
await lock.use({ timeout: 2_000 }, () => assert.rejects(lock.tryAcquire()));
for (let scrape = 0; scrape < 2; scrape++) {
  const text = await register.metrics();
  for (const line of ['granted_total 1', 'denied_total 1', 'line_full_total 0', 'reconnects_total 0']) {
    assert.ok(text.includes(`\nluagate_${line}\n`), text);
  }
}
await gate.close();
