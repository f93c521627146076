package html_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/nemesh/nemesh/reports/record"
)

var (
	pictures = flag.String("pictures", "", "folder to which TestPictures writes screenshots")
	pictured = flag.String("record", "", "record of which TestPictures takes them (default: a synthetic one)")
)

// waitAtMost bounds a test in a browser; on a busy machine Chromium alone takes half a minute to start.
const waitAtMost = 6 * time.Minute

// browser is a page in headless Chromium with all that it complained about and asked for.
type browser struct {
	tb   testing.TB
	ctx  context.Context
	file string // of which pictures are taken

	mu       sync.Mutex
	problems []string
}

// open starts Chromium on a page, or on none. The test is skipped where there is none.
func open(tb testing.TB, file string) *browser {
	tb.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		tb.Skip("no Chromium here: install Debian's package chromium to test the report in a browser")
	}
	options := append(
		slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path),
		chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true),
	)
	allocated, stop := chromedp.NewExecAllocator(tb.Context(), options...)
	tb.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocated)
	tb.Cleanup(cancel)
	ctx, expire := context.WithTimeout(ctx, waitAtMost)
	tb.Cleanup(expire)
	b := &browser{tb: tb, ctx: ctx}
	chromedp.ListenTarget(ctx, b.hear)
	b.do(log.Enable(), runtime.Enable(), network.Enable())
	if file != "" {
		b.do(chromedp.Navigate("file://" + file))
	}
	return b
}

// hear collects errors, and requests for anything but the file.
func (b *browser) hear(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			problem = "console: " + string(e.Type)
			for _, a := range e.Args {
				problem += " " + string(a.Value) + a.Description
			}
		}
	case *log.EventEntryAdded:
		problem = e.Entry.Text
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, "file://") && !strings.HasPrefix(e.Request.URL, "data:") {
			problem = "asked for " + e.Request.URL
		}
	}
	if problem != "" {
		b.mu.Lock()
		b.problems = append(b.problems, problem)
		b.mu.Unlock()
	}
}

func (b *browser) do(actions ...chromedp.Action) {
	b.tb.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.tb.Fatal(err)
	}
}

// eval evaluates an expression in the page.
func eval[T any](b *browser, expression string) T {
	b.tb.Helper()
	var value T
	b.do(chromedp.Evaluate(expression, &value))
	return value
}

// visible waits until an element is drawn.
func visible(selector string) chromedp.Action {
	return chromedp.Poll(fmt.Sprintf("document.querySelector(%q)?.getClientRects().length > 0", selector), nil,
		chromedp.WithPollingInterval(20*time.Millisecond))
}

// click, enter and key act as a person at the page would.
func click(selector string) chromedp.Action {
	return chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).click()", selector), nil)
}

func enter(selector, text string) chromedp.Action {
	return chromedp.Evaluate(fmt.Sprintf(`{ const e = document.querySelector(%q); e.value = %q; `+
		`e.dispatchEvent(new Event("input")); }`, selector, text), nil)
}

func key(selector, name string) chromedp.Action {
	return chromedp.Evaluate(
		fmt.Sprintf("document.querySelector(%q).dispatchEvent(new KeyboardEvent(\"keydown\", "+
			"{key: %q, bubbles: true}))", selector, name),
		nil,
	)
}

func (b *browser) quiet() {
	b.tb.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.tb.Errorf("the browser complains: %s", p)
	}
}

// page renders a record into a file.
func page(tb testing.TB, o *record.Outcome) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "index.html")
	if err := os.WriteFile(path, render(tb, o), 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

func TestInABrowser(t *testing.T) {
	b := open(t, page(t, load(t, synthetic(t, 20, 5, 50))))
	if n := eval[int](b, `document.querySelectorAll("#runs tbody tr").length`); n != 20 {
		t.Errorf("%d rows", n)
	}
	if first := eval[string](b, `document.querySelector("#runs tbody tr").dataset.state`); first != "failed" {
		t.Errorf("a %s scenario comes first", first)
	}
	shown := `[...document.querySelectorAll("#runs tbody tr")].filter(r => r.offsetParent).length`
	b.do(click("button.state.failed"))
	if n := eval[int](b, shown); n != 2 {
		t.Errorf("%d failed scenarios are shown", n)
	}
	b.do(click("button.state.failed"), enter("#search", "synthetic-013"))
	if n := eval[int](b, shown); n != 1 {
		t.Errorf("%d scenarios match", n)
	}
	b.do(click("#r13 a"), visible("#sentence"))
	if said := eval[string](b, `document.querySelector("#sentence").textContent`); !strings.Contains(said,
		"reply lost on node04 at flannel.1: neighbour 172.16.1.0 is INCOMPLETE") {
		t.Errorf("it says %q", said)
	}
	dead := `document.querySelectorAll(".hops li.dead")`
	if n := eval[int](b, dead+".length"); n != 1 {
		t.Fatalf("%d dead hops", n)
	}
	if at := eval[string](b, dead+"[0].closest('li.on').textContent"); !strings.Contains(at, "node04") ||
		!strings.Contains(at, "flannel.1") {
		t.Errorf("it died at %q", at)
	}
	same := `getComputedStyle(document.querySelector(".hops li.dead")).borderTopColor ===
		getComputedStyle(document.querySelector(".verdict.failed")).color`
	if !eval[bool](b, same) {
		t.Error("the dead hop is not red")
	}
	if n := eval[int](b, `document.querySelectorAll(".topo circle.dead").length`); n != 1 {
		t.Errorf("%d dead hops in the topology", n)
	}
	if n := eval[int](b, `document.querySelectorAll(".plot canvas").length`); n != 13 {
		t.Errorf("%d charts for 12 pairs and the lanes", n)
	}
	b.do(key(".plot", "+"), key(".plot", "0"))
	b.do(click("#theme"), key("body", "]"), key("body", "Escape"), visible("#runs"))
	b.quiet()
}

// The topology marks the machines at which a fault is, by the record's fields, and the table says what each
// was.
func TestFaultsInABrowser(t *testing.T) {
	b := open(t, page(t, load(t, "../../fixtures/records/faults.jsonl"))+"#s0")
	b.do(visible(".topo"))
	if n := eval[int](b, `document.querySelectorAll(".faults tbody tr").length`); n != 5 {
		t.Errorf("%d faults in the table", n)
	}
	if said := eval[string](b, `document.querySelectorAll(".faults tbody tr")[1].textContent`); said !=
		"agent on node02 restarted ×2agent-restartagentnode02no packet lost; nothing in the kernel changes" {
		t.Errorf("the table says %q", said)
	}
	hit := `[...document.querySelectorAll(".topo .hit")].map(e => e.nextSibling.textContent).join(" ")`
	b.do(chromedp.Poll(hit+` === "etcd etcd2 etcd3 node01"`, nil)) // at the outage
	b.do(chromedp.Evaluate(
		`document.querySelector(".plot").dispatchEvent(new KeyboardEvent("keydown", {key: "Home"}))`, nil))
	b.do(chromedp.Poll(hit+` === ""`, nil))
	b.quiet()
}

// The time under the cursor is the same in the timeline, the topology and the output.
func TestOneCursorForAll(t *testing.T) {
	b := open(t, page(t, load(t, synthetic(t, 4, 5, 50)))+"#s3")
	b.do(visible(".topo"))
	losing := `document.querySelectorAll(".topo .link.bad").length`
	b.do(chromedp.Poll(losing+` === 1`, nil)) // in the middle of the outage
	b.do(
		chromedp.Evaluate(
			`document.querySelector(".plot").dispatchEvent(new KeyboardEvent("keydown", {key: "Home"}))`,
			nil,
		),
	)
	b.do(chromedp.Poll(losing+` === 0`, nil))
	if said := eval[string](
		b,
		`document.querySelector("#readout0").textContent`,
	); !strings.Contains(
		said,
		"nothing broken",
	) {
		t.Errorf("at the beginning: %q", said)
	}
	b.do(
		chromedp.Evaluate(
			`[...document.querySelectorAll(".log div")].find(d => d.textContent.includes("b>20")).click()`,
			nil,
		),
	)
	b.do(chromedp.Poll(losing+` === 1`, nil))
	b.quiet()
}

// What is drawn on the timeline and read in the output, as the page's own functions say.
func TestSignsAndLines(t *testing.T) {
	b := open(t, page(t, load(t, synthetic(t, 1, 1, 1))))
	for _, c := range [][2]string{
		{"N.stepGroups([0, 5, 9, 99, 130], 16).map(g => [g.x, g.first, g.last])", "[[0,1,3],[99,4,4],[130,5,5]]"},
		{`N.logLine('time=1 level=WARN err="x"')`, `{"text":"level=WARN err=\"x\"","level":"WARN"}`},
		{`N.logLine('{"level":"info","ts":"1","msg":"on","n":2}')`, `{"text":"info on n=2","level":"info"}`},
		{"N.logLine('{half')", `{"text":"{half","level":"info"}`},
		{"N.logLine('panic: no')", `{"text":"panic: no","level":"error"}`},
	} {
		if got := eval[string](b, "JSON.stringify("+c[0]+")"); got != c[1] {
			t.Errorf("%s is %s, want %s", c[0], got, c[1])
		}
	}
	b.quiet()
}

// The second is one of processor time, so that what else the machine does is not measured.
func TestSixtyScenariosOpenInASecond(t *testing.T) {
	file := page(t, load(t, synthetic(t, 60, 10, 200)))
	b := open(t, "")
	b.do(
		performance.Enable().WithTimeDomain(performance.EnableTimeDomainThreadTicks),
		chromedp.Navigate("file://"+file),
		visible("#runs"),
	)
	var took float64
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		metrics, err := performance.GetMetrics().Do(ctx)
		for _, m := range metrics {
			if m.Name == "TaskDuration" {
				took = m.Value
			}
		}
		return err
	}))
	t.Logf("%d bytes are there after %.0f ms of the browser's main thread", size(t, file), took*1000)
	if took <= 0 || took > 1 {
		t.Errorf("it took %.3f s", took)
	}
	b.quiet()
}

func TestNothingOverflows(t *testing.T) {
	b := open(t, page(t, load(t, synthetic(t, 4, 5, 50))))
	for _, width := range []int64{400, 760, 1400, 2000} {
		for _, hash := range []string{"", "s3"} {
			b.do(
				chromedp.EmulateViewport(width, 900),
				chromedp.Evaluate(fmt.Sprintf("location.hash = %q", hash), nil),
				chromedp.Poll(`document.getElementById("list").hidden === (location.hash.length > 1)`, nil),
			)
			if wide := eval[int64](b, `document.documentElement.scrollWidth`); wide > width {
				t.Errorf("at %d pixels %q is %d wide", width, hash, wide)
			}
		}
	}
	b.quiet()
}

// TestPictures takes the screenshots that a person looks at: go test ./reports/html -run Pictures -pictures
// DIR
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("no -pictures")
	}
	path := *pictured
	if path == "" {
		path = synthetic(t, 24, 5, 50)
	}
	o := load(t, path)
	failed := slices.IndexFunc(
		o.Scenarios,
		func(s *record.Scenario) bool { return s.Verdict != nil && s.Verdict.State == record.Failed },
	)
	views := map[string]string{"list": "", "scenario": fmt.Sprintf("#s%d", max(failed, 0))}
	b := open(t, "")
	b.file = page(t, o)
	for name, hash := range views {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{400, 1400, 2000} {
				b.show("", scheme, hash, width, 900, 1)
				b.picture(fmt.Sprintf("%s-%s-%d", name, scheme, width), false)
				b.picture(fmt.Sprintf("%s-%s-%d-whole", name, scheme, width), true)
			}
		}
		b.show("print", "light", hash, 760, 1000, 1)
		b.picture(name+"-print", true)
	}
	b.show("", "light", views["scenario"], 1280, 1000, 1.5) // the README's
	b.picture("readme", false)
	b.do(chromedp.Evaluate(`document.querySelector(".log")?.scrollIntoView({block: "end"})`, nil),
		painted())
	b.picture("output", false)
	b.quiet()
}

// show opens the page as a medium ("" for the screen), in a scheme, at a size in CSS pixels.
func (b *browser) show(medium, scheme, hash string, width, height int64, scale float64) {
	b.tb.Helper()
	b.do(
		emulation.SetEmulatedMedia().WithMedia(medium).WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
		}),
		chromedp.EmulateViewport(width, height, chromedp.EmulateScale(scale)),
		chromedp.Navigate("file://"+b.file+"?"+medium+scheme+hash),
		visible(map[bool]string{true: "#runs", false: ".topo"}[hash == ""]),
		painted(),
	)
}

// painted waits until what has changed is on the screen.
func painted() chromedp.Action {
	return chromedp.Evaluate(
		`new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`,
		nil,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) },
	)
}

// picture writes what is seen, or the whole page, to a file.
func (b *browser) picture(name string, whole bool) {
	b.tb.Helper()
	var shot []byte
	if whole {
		b.do(chromedp.FullScreenshot(&shot, 100))
	} else {
		b.do(chromedp.CaptureScreenshot(&shot))
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), small(b.tb, shot), 0o644); err != nil {
		b.tb.Fatal(err)
	}
}

// alike reports whether nobody could tell two colours apart.
func alike(a color.Color, b color.RGBA) bool {
	c, near := a.(color.RGBA), func(x, y uint8) bool { return max(x, y)-min(x, y) < 8 }
	return near(c.R, b.R) && near(c.G, b.G) && near(c.B, b.B)
}

// small is a picture with the 256 colours of which it has most, a third of its size: text and lines do not
// need more.
func small(tb testing.TB, shot []byte) []byte {
	tb.Helper()
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		tb.Fatal(err)
	}
	count := map[color.RGBA]int{}
	each := func(do func(x, y int, c color.RGBA)) {
		for y := full.Bounds().Min.Y; y < full.Bounds().Max.Y; y++ {
			for x := full.Bounds().Min.X; x < full.Bounds().Max.X; x++ {
				do(x, y, color.RGBAModel.Convert(full.At(x, y)).(color.RGBA))
			}
		}
	}
	each(func(_, _ int, c color.RGBA) { count[c]++ })
	colors := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return count[b] - count[a] })
	palette := color.Palette{}
	for _, c := range colors {
		// Shades of what is there already would take the place of a colour that only a small sign has.
		if len(palette) < 256 && !slices.ContainsFunc(palette, func(p color.Color) bool { return alike(p, c) }) {
			palette = append(palette, c)
		}
	}
	nearest := map[color.RGBA]uint8{}
	for _, c := range colors {
		nearest[c] = uint8(palette.Index(c))
	}
	few := image.NewPaletted(full.Bounds(), palette)
	each(func(x, y int, c color.RGBA) { few.SetColorIndex(x, y, nearest[c]) })
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}
