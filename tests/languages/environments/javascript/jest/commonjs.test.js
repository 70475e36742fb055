const { Luagate } = require('luagate');
const { createClient } = require('redis');

test('a permit is granted and released', async () => {
  const gate = new Luagate(createClient({ url: process.env.REDIS_URL }));
  expect(await gate.mutex('jest').use({ timeout: 2_000 }, ({ isLost }) => isLost)).toBe(false);
  await gate.close();
});
