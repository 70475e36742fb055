import { Luagate, type Permit } from 'luagate';
import { createClient } from 'redis';

async function main() {
  const gate = new Luagate(createClient({ url: process.env.REDIS_URL }));
  const work = ({ isLost }: Permit): string => (isLost ? 'lost' : 'works');
  console.log(await gate.mutex('typed').use({ timeout: 2_000 }, work));
  await gate.close();
}

main();
