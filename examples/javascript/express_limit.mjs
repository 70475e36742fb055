// A web service on Express that works on five reports at a time, over all its processes and machines.
//
//   npm install ./clients/javascript redis express
//   PORT=3000 node examples/javascript/express_limit.mjs    # REDIS_URL is the address of the Redis server
//   curl -i http://127.0.0.1:3000/report                    # 200, or after 2 s in line 429 with Retry-After
//   curl -i http://127.0.0.1:3000/health                    # has no limit
//
// WORK_MS is the duration of the work for each of the ten rows of a report, and WAIT_MS the longest wait.

import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import { LineFullError, Luagate, TimedOutError } from 'luagate';
import { createClient } from 'redis';

const { PORT = '3000', REDIS_URL = 'redis://127.0.0.1/', WORK_MS = '50', WAIT_MS = '2000' } = process.env;

/**
 * A middleware: each request holds a permit until its response has been sent or its client has gone. `wait` is the longest
 * wait for a permit, and `usual` the usual duration of a request, for Retry-After, both in milliseconds.
 */
function limited(semaphore, { wait, usual }) {
  return async (request, response, next) => {
    const gone = new AbortController();
    response.once('close', () => gone.abort()); // a client that has gone leaves the line
    let permit;
    try {
      permit = await semaphore.acquire({ timeout: wait, signal: gone.signal });
    } catch (error) {
      if (gone.signal.aborted) return;
      // With a cause, the server of the semaphore did not answer.
      const isBusy = (error instanceof TimedOutError || error instanceof LineFullError) && !error.cause;
      if (!isBusy) {
        console.error('a request was refused:', error);
        response.status(503).send('try again later\n');
        return;
      }
      response.set('Retry-After', String(Math.ceil(error.retryAfter(usual) / 1_000))); // the header has whole seconds
      response.status(429).send('busy\n');
      return;
    }
    const release = () => permit.release().catch((error) => console.error('released in the background:', error));
    if (gone.signal.aborted) return void release();
    response.once('close', release);
    // Another request may have the permit now: the client sees that the response is not complete.
    permit.signal.addEventListener('abort', () => response.destroy());
    response.locals.permit = permit; // its `signal` for the work, and its `fence`
    next();
  };
}

const gate = new Luagate(createClient({ url: REDIS_URL }));
const work = Number(WORK_MS);
const app = express();
// If more than 100 requests wait in line, the next ones get 429 at once.
const limit = limited(gate.semaphore('report', 5, { maxWaiting: 100 }), { wait: Number(WAIT_MS), usual: 10 * work });

app.get('/report', limit, async (request, response) => {
  response.type('text').flushHeaders();
  for (let row = 1; row <= 10 && !response.destroyed; row += 1) {
    await sleep(work); // in place of a query
    response.write(`row ${row}\n`);
  }
  response.end();
});
app.get('/health', (request, response) => response.send('healthy\n'));

const server = app.listen(Number(PORT), '127.0.0.1', (error) => {
  if (error) throw error;
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});

// Answers the requests that it has, and then waits for the releases.
for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => server.close(() => gate.close()));
