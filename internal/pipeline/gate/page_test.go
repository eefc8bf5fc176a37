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
	b.WriteString("# Gate\n\nBefore an update moves a node, every check of this list is asked, in this order; all answers are in `status.checks` of the\n" +
		"ClusterUpdate, the sentences in `blockers` and `warnings` (`refit gate`, `refit status`). The admission policies see to it that no\n" +
		"node runs before (config/admission). This page is made from `internal/pipeline/gate` (go test ./internal/pipeline/gate -update).\n\n" +
		"A risk is accepted by the check's name, with a reason and an end: `refit accept CHECK --reason TEXT --until DURATION`. Until then\n" +
		"the check's \"no\" is a warning, and it stays on record; from its end on the check counts again. Where the last column says why, nobody can.\n\n" +
		"| check | asks | can be accepted |\n| --- | --- | --- |\n")
	for _, c := range Checks() {
		can := "yes"
		if c.Never != "" {
			can = "no: " + c.Never
		}
		b.WriteString("| `" + c.Name + "` | " + c.Asks + " | " + can + " |\n")
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
