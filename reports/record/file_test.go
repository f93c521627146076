package record_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nemesh/nemesh/reports/record"
)

func TestManyWritersKeepLinesWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.jsonl")
	var all sync.WaitGroup
	for i := range 4 {
		w, err := record.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			mine := w.For(fmt.Sprintf("scenario %d", i))
			for range 500 {
				mine.Write(record.Event{Kind: record.KindStep, Step: strings.Repeat("x", 5000)})
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	events, err := record.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range events {
		count[e.Scenario]++
	}
	if len(events) != 2000 || count["scenario 3"] != 500 {
		t.Fatalf("%d events, %v", len(events), count)
	}
}

func TestCutRecordGivesWhatItHolds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.jsonl")
	whole := `{"at":1,"kind":"run","run":{"version":2}}` + "\n" + `{"at":2,"kind":"step","step":"a"}` + "\n"
	if err := os.WriteFile(path, []byte(whole+`{"at":3,"ki`), 0o644); err != nil {
		t.Fatal(err)
	}
	events, err := record.ReadFile(path)
	if !errors.Is(err, record.ErrCut) || len(events) != 2 {
		t.Fatalf("%d events, %v", len(events), err)
	}
}

func TestOtherVersionIsRefused(t *testing.T) {
	err := record.Read(strings.NewReader(`{"at":1,"kind":"run","run":{"version":99}}`+"\n"),
		func(record.Event) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Fatal(err)
	}
}

func TestNotARecord(t *testing.T) {
	err := record.Read(strings.NewReader("hello\n"), func(record.Event) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "line 1 is not an event") {
		t.Fatal(err)
	}
}
