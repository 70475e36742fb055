package luagate

import (
	"cmp"
	"regexp"
	"strconv"
)

var ticketText = regexp.MustCompile(`^[1-9][0-9]{0,15}$`)

// Ticket is a place in line. Of two waiters, the one with the lower ticket is served first. The zero Ticket
// stands for no place.
type Ticket struct{ number int64 }

// ParseTicket returns the ticket with this text, which String returned. It returns ErrInvalid for another
// text.
func ParseTicket(text string) (Ticket, error) {
	if !ticketText.MatchString(text) {
		return Ticket{}, invalid("ticket", text, "the text of a ticket, permit.Ticket.String()")
	}
	number, err := strconv.ParseInt(text, 10, 64)
	return Ticket{number}, err
}

// String returns its text, which can be stored. The text of the zero Ticket is empty.
func (t Ticket) String() string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.number, 10)
}

// Compare returns -1 if t is served before other, and 1 if it is served after it.
func (t Ticket) Compare(other Ticket) int { return cmp.Compare(t.number, other.number) }

// IsZero reports whether it stands for no place.
func (t Ticket) IsZero() bool { return t.number == 0 }
