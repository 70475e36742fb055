package luagate

import "time"

var began = time.Now()

// clock returns the time since a fixed instant. It counts the time while the machine is suspended, as the
// lease goes on at the server. Where the system has no such clock, it does not.
var clock = func() time.Duration { return time.Since(began) }

// until returns the time that is left until this instant of clock.
func until(at time.Duration) time.Duration { return at - clock() }
