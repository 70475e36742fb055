// A program in the CommonJS form. It is compiled, not run.
import luagate = require('luagate');
import ioredis = require('ioredis-oldest');
import redis = require('redis');

const gate: luagate.Luagate = new luagate.Luagate(redis.createClient());
gate.mutex('lock').use({}, ({ id }) => id);
const counters: luagate.Counters = gate.counters();
console.log(counters.reconnects);
new luagate.Luagate(new ioredis.default());
