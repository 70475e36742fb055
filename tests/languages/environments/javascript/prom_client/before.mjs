import { Luagate } from 'luagate';
import { createClient } from 'redis';

const gate = new Luagate(createClient({ url: process.env.REDIS_URL }));
