// A semaphore of luagate, with the package in clients/javascript and the package redis.

import { createClient } from 'redis';
import { Luagate } from '../../../clients/javascript/index.mjs';
import { playBlocks, scene } from '../languages/javascript/scenes.mjs';

const asked = scene();
const client = createClient({ url: asked.url });
const gate = new Luagate(client);
const semaphore = gate.semaphore('scene', asked.permits);
await semaphore.inspect();
await playBlocks(asked, 1, (_, hold) => semaphore.use({}, hold));
await gate.close();
