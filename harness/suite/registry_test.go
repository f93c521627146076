package suite

import (
	"context"
	"strings"
	"testing"
)

func TestInvariantsThatAreRefused(t *testing.T) {
	check := func(context.Context, *Cluster) ([]string, error) { return nil, nil }
	RegisterInvariant(Invariant{ID: "mine", Statement: "It is mine.", Check: check})
	for want, v := range map[string]Invariant{
		`"mine" already`:                  {ID: "mine", Statement: "Another.", Check: check},
		`"no-panic" already`:              {ID: "no-panic", Statement: "As nemesh's.", Check: check},
		"is no id":                        {ID: "My own", Statement: "x", Check: check},
		"needs a Statement and a Check":   {ID: "silent", Check: check},
		`"blind" needs a Statement and a`: {ID: "blind", Statement: "x"},
	} {
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, want) {
					t.Errorf("want %q, got %q", want, said)
				}
			}()
			RegisterInvariant(v)
		}()
	}
	if all := registered.list(); len(all) != 1 || all[0].ID != "mine" {
		t.Errorf("%+v", all)
	}
}
