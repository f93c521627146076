package explain

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// clock remembers the last time of day it has read: a log has many lines in one second.
type clock struct {
	stamp string
	day   int32
	wall  float64
}

func (c *clock) read(stamp string) (int32, float64) {
	if stamp != c.stamp {
		c.day, c.wall = wall(stamp)
		c.stamp = strings.Clone(stamp)
	}
	return c.day, c.wall
}

// prefix reads what stands before the kernel's words in a log line: syslog in its old and its RFC 5424-like
// form, journalctl, dmesg with and without -T. The host is empty where the line does not name it.
func (c *clock) prefix(s string) (host string, at Time) {
	at = unknown
	stamp := s
	if i := strings.Index(s, " kernel:"); i >= 0 {
		stamp = s[:i]
		if j := strings.LastIndexByte(stamp, ' '); j >= 0 {
			host, stamp = stamp[j+1:], stamp[:j]
		}
		if !isHostName(host) {
			host = ""
		}
		s = s[i+len(" kernel:"):]
	}
	at.Day, at.Wall = c.read(strings.TrimSpace(stamp))
	if i := strings.IndexByte(s, '['); i >= 0 {
		if j := strings.IndexByte(s[i:], ']'); j > 0 {
			inner := strings.TrimSpace(s[i+1 : i+j])
			if up, err := strconv.ParseFloat(inner, 64); err == nil && up >= 0 && up < 1e10 {
				at.Up = up
			} else if at.Wall < 0 {
				at.Day, at.Wall = wall(inner)
			}
		}
	}
	return host, at
}

// wall finds a time of day, and the date where there is one.
func wall(stamp string) (int32, float64) {
	i := strings.IndexByte(stamp, ':')
	if i < 2 {
		return 0, -1
	}
	clock := stamp[i-2:]
	if end := strings.IndexAny(clock, " +-Z"); end >= 0 {
		clock = clock[:end]
	}
	seconds := timeOfDay(clock)
	if seconds < 0 {
		return 0, -1
	}
	date := strings.TrimRight(stamp[:i-2], " T")
	if len(date) >= 10 {
		if d, err := time.Parse(time.DateOnly, date[len(date)-10:]); err == nil {
			return int32(d.Unix() / 86400), seconds
		}
	}
	// "Mar 12", perhaps with more before it ("<4>", "Mon "). The year is not told; one without 29 February
	// would lose a day of reports every four years.
	fields := strings.Fields(date)
	if len(fields) >= 2 {
		month := fields[len(fields)-2]
		month = month[max(0, len(month)-3):]
		d, err := time.Parse("2006 Jan 2", "2000 "+month+" "+fields[len(fields)-1])
		if err == nil {
			return int32(d.Unix() / 86400), seconds
		}
	}
	return 0, seconds
}

// timeOfDay reads 17:26:36 and 17:26:36.123456 as seconds since midnight; -1 when it is neither.
func timeOfDay(s string) float64 {
	if len(s) < 8 || s[2] != ':' || s[5] != ':' {
		return -1
	}
	h, err1 := strconv.Atoi(s[:2])
	m, err2 := strconv.Atoi(s[3:5])
	sec, err3 := strconv.ParseFloat(s[6:], 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return -1
	}
	if h < 0 || h > 23 || m < 0 || m > 59 || math.IsNaN(sec) || sec < 0 || sec >= 61 {
		return -1
	}
	return float64(h*3600+m*60) + sec
}

// isHostName accepts what a syslog line may have in that place, and nothing that could play with a terminal.
func isHostName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return true
}
