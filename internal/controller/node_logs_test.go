package controller

import (
	"fmt"
	"strings"
	"testing"
)

// Of more than fits, whole lines at the end stay.
func TestLastBytes(t *testing.T) {
	t.Parallel()
	l := &lastBytes{most: 100}
	for i := range 2000 {
		fmt.Fprintf(l, "line %d\n", i)
	}
	got := string(l.lines())
	all := strings.Split(strings.TrimSpace(got), "\n")
	if len(got) > 100 || len(all) < 8 || all[len(all)-1] != "line 1999" || !strings.HasPrefix(all[0], "line 19") {
		t.Errorf("%q", all)
	}
	few := &lastBytes{most: 100}
	fmt.Fprint(few, "without an end")
	if got := string(few.lines()); got != "without an end" {
		t.Errorf("%q", got)
	}
}
