package gate

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("update", false, "write docs/reference/gate.md")

// The reference page is the list of checks.
func TestPage(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# Gate\n\nEvery check of this list must pass before an update moves a node, in this order. `status.checks` of the ClusterUpdate has the answers,\n" +
		"`blockers` and `warnings` have the sentences (`refit gate`, `refit status`). The admission policies enforce the gate\n" +
		"(config/admission). Made from `internal/pipeline/gate` by `go test ./internal/pipeline/gate -update`.\n\n" +
		"`refit accept CHECK --reason TEXT --until DURATION` acknowledges a failing check until a deadline. Until then it is a warning and stays\n" +
		"on record. Then the check counts again. The last column gives the reason if a check cannot be accepted.\n\n" +
		"| check | asks | can be accepted |\n| --- | --- | --- |\n")
	for _, c := range Checks() {
		can := "yes"
		if c.NeverAcceptable != "" {
			can = "no: " + c.NeverAcceptable
		}
		b.WriteString("| `" + c.Name + "` | " + c.Question + " | " + can + " |\n")
	}
	const page = "../../../docs/reference/gate.md"
	if *rewrite {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil || string(got) != b.String() {
		t.Errorf("%s is not the list of checks (%v): run go test ./internal/pipeline/gate -update", page, err)
	}
}
