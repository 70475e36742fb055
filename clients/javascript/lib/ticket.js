// The ticket of a wait.
const { refuse } = require('./settings.js');

const TEXT = /^[1-9][0-9]{0,15}$/;

/** Of this package: makes the ticket with the number of a reply. */
let given;

/** A place in line. Of two waiters, the one with the smaller ticket is served first. */
class Ticket {
  #number;

  static {
    given = (number) => {
      const ticket = new Ticket('1');
      ticket.#number = number;
      return ticket;
    };
  }

  constructor(text) {
    if (typeof text !== 'string' || !TEXT.test(text))
      refuse('ticket', text, 'the text of a ticket, `${permit.ticket}`');
    this.#number = Number(text);
  }

  static compare(a, b) {
    return a.#number - b.#number;
  }

  toString() {
    return `${this.#number}`;
  }

  toJSON() {
    return this.toString();
  }
}

module.exports = { given, Ticket };
