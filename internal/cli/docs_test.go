package cli

import (
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/cli/console"
)

// A person without a network finds a page by its name or by words; what is not there has a way on.
func TestDocs(t *testing.T) {
	t.Parallel()
	p := &person{t: t}
	for line, want := range map[string]string{
		"docs":                                "  how-to/support                       Show a site's state to a person elsewhere\n",
		"docs support":                        "Show a site's state to a person elsewhere\n=====",
		"docs how-to/stuck":                   "It is stuck\n",
		"docs boot-images":                    "pages of the same name: reference/boot-images",
		"docs --search archive --search site": "how-to/support: ",
	} {
		if said := p.types(console.ExitOK, strings.Fields(line)...); !strings.Contains(said, want) {
			t.Errorf("refit %s: no %q in %.300s", line, want, said)
		}
	}
	if said := p.types(console.ExitOK, "docs", "--search", "agent node"); !strings.HasSuffix(said, "more; add a word to see fewer.\n") || strings.Count(said, "\n    ") != maxHits {
		t.Errorf("%s", said)
	}
	for line, want := range map[string]string{"docs suppor": "near it: how-to/support", "docs nothing-at-all": "refit docs lists them", "docs support --search x": "not both"} {
		if said := p.types(console.ExitUsage, strings.Fields(line)...); !strings.Contains(said, want) {
			t.Errorf("refit %s: %s", line, said)
		}
	}
	if said := p.types(console.ExitInternal, "docs", "--search", "xyzzyx"); !strings.Contains(said, "try fewer words") {
		t.Error(said)
	}
}
