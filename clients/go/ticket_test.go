package luagate

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestTicketIsTheSameFromItsText(t *testing.T) {
	given := []Ticket{{1795205203259456}, {17}, {1795205203259455}}
	for _, ticket := range given {
		if again, err := ParseTicket(ticket.String()); err != nil || again != ticket {
			t.Errorf("%v: got %v, %v", ticket, again, err)
		}
	}
	slices.SortFunc(given, Ticket.Compare)
	if expected := []Ticket{{17}, {1795205203259455}, {1795205203259456}}; !slices.Equal(given, expected) {
		t.Errorf("in order: %v", given)
	}
	if none := (Ticket{}); none.String() != "" || !none.IsZero() || given[0].IsZero() {
		t.Errorf("no place: %q", none)
	}
}

func TestATextOfNoTicketIsInvalid(t *testing.T) {
	for _, text := range []string{"", "0", "017", "-1", "+1", " 1", "seven", strings.Repeat("1", 17)} {
		if ticket, err := ParseTicket(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: got %v, %v", text, ticket, err)
		}
	}
}
