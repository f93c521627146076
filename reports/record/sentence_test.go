package record_test

import (
	"strings"
	"testing"

	"github.com/nemesh/nemesh/reports/record"
)

// The messages are Gomega's, as it writes them.
func TestTold(t *testing.T) {
	long := strings.Repeat("a", 40)
	for name, c := range map[string]struct{ message, want string }{
		"a short value": {
			"host → pod lost packets as well\nExpected\n    <uint64>: 160\nto be zero-valued",
			"host → pod lost packets as well: expected 160 to be zero-valued",
		},
		"a long list": {
			"neighbours of node01\nExpected\n    <[]string | len:2, cap:2>: [\n        \"" + long +
				"\",\n        \"" + long + "\",\n    ]\nto have length 3",
			"neighbours of node01: expected 2 values to have length 3",
		},
		"a short map": {
			"Expected\n    <map[string]int | len:1>: {\"a\": 1}\nto have key\n    <string>: b",
			`expected {"a": 1} to have key b`,
		},
		"an error that should not be": {
			"Expected success, but got an error:\n    <*fmt.wrapError | 0xd085d7b0180>: \n    3 of 4 pairs:\n" +
				"    a table\n    {\n        msg: \"reach\",\n    }",
			"3 of 4 pairs",
		},
		"another, with words of its own": {
			"new pod on node01\nUnexpected error:\n    <*errors.errorString | 0xd085d7b01e0>: \n" +
				"    no subnet.env\n    {s: \"no subnet.env\"}\noccurred",
			"new pod on node01: no subnet.env",
		},
		"the wrong error": {
			"Expected\n    <*errors.errorString | 0xd085d7a0bd0>: \n    e\n    {s: \"e\"}\nto match error\n" +
				"    <string>: f",
			"expected e to match error f",
		},
		"time ran out": {
			"Timed out after 5.001s.\nARP requests\nExpected\n    <int>: 2\nto be >=\n    <int>: 3",
			"ARP requests: expected 2 to be >= 3 (after 5.001 s)",
		},
		"time ran out in a function": {
			"Timed out after 5.001s.\nThe function passed to Eventually failed at /x/y_test.go:10 with:\ninner\n" +
				"Expected\n    <bool>: false\nto be true",
			"inner: expected false to be true (after 5.001 s)",
		},
		"no matcher": {
			"not proven: the black hole\nlets packets through",
			"not proven: the black hole lets packets through",
		},
		"much":    {strings.Repeat("b", 300), strings.Repeat("b", 240) + "…"},
		"nothing": {"", ""},
	} {
		if got := record.Told(c.message); got != c.want {
			t.Errorf("%s:\n%q, want\n%q", name, got, c.want)
		}
	}
}
