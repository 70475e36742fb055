const { classes } = require('./lib/errors.js');
const { Luagate } = require('./lib/luagate.js');
const { nameFrom } = require('./lib/settings.js');
const { Ticket } = require('./lib/ticket.js');

module.exports = { Luagate, Ticket, nameFrom, ...classes };
