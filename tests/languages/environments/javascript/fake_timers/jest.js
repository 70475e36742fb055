const check = require('./check.cjs');

test('fake timers', async () => {
  jest.useFakeTimers();
  await check(['redis'], (ms) => jest.advanceTimersByTime(ms));
  jest.useRealTimers();
  jest.useFakeTimers({ doNotFake: ['nextTick'] });
  await check(['ioredis'], (ms) => jest.advanceTimersByTime(ms));
});
