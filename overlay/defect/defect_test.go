package defect

import (
	"strings"
	"testing"
)

func TestOnlyTheSpecialBuildTakesDefects(t *testing.T) {
	set, err := Parse([]string{string(ForgetSubnet)})
	if normal := len(Built()) == 0; normal {
		if err == nil || !strings.Contains(err.Error(), "-tags defects") {
			t.Fatalf("the normal build took a defect: %v, %v", set, err)
		}
		return
	}
	if err != nil || !set.Has(ForgetSubnet) || set.Has(OnDemandNeighbours) {
		t.Fatalf("got %v, %v", set, err)
	}
}

func TestUnknownDefectIsRefused(t *testing.T) {
	if _, err := Parse([]string{"rust"}); err == nil || !strings.Contains(err.Error(), `"rust"`) {
		t.Fatalf("got %v", err)
	}
}
