import { test, vi } from 'vitest';
import check from './check.cjs';

test('fake timers', async () => {
  vi.useFakeTimers();
  await check(['redis', 'ioredis'], (ms) => vi.advanceTimersByTime(ms));
  vi.useRealTimers();
});
