package luagate

import (
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	var at unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &at) != nil {
		return
	}
	clock = func() time.Duration {
		var at unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &at) // it did not fail before
		return time.Duration(at.Nano())
	}
}
