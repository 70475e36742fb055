const sinon = require('sinon');
const check = require('./check.cjs');

// Without `process.nextTick`, no socket of Node.js works.
const clock = sinon.useFakeTimers({ toNotFake: ['nextTick'] });
check(['redis', 'ioredis'], (ms) => clock.tick(ms)).then(
  () => process.exit(0),
  (error) => (console.error(error), process.exit(1)),
);
