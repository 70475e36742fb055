const { classes } = require('./lib/errors.js');
const { Luagate } = require('./lib/luagate.js');
const { Ticket } = require('./lib/ticket.js');

module.exports = { Luagate, Ticket, ...classes };
