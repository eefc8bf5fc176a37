package track

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is in an update, in one sentence.
func TestCompare(t *testing.T) {
	t.Parallel()
	n := func(name, letter string) Named { return Named{"r.example/" + name, d(letter)} }
	a := []Named{
		n("app:2.6.2-rev1", "a"), n("app:2.6.2-rev1-b5.1", "a"),
		n("web:1.0.0-rev9", "b"), n("web:1.0.0-rev9-b1.1", "b"),
		n("db:3.1.0-rev1-b1.1", "c"),
		n("old:1.0.0-rev1-b1.1", "d"),
		n("same:1.0.0-rev1-b1.1", "e"),
		n("cache:7-rev1", "f"),
		n("mail:1.0.0-rev1-b2.1", "0"),
	}
	b := []Named{
		n("app:2.6.2-rev1", "1"), n("app:2.6.2-rev1-b5.2", "1"),
		n("web:1.0.0-rev10", "2"), n("web:1.0.0-rev10-b1.1", "2"),
		n("db:3.2.0-rev1-b1.1", "3"),
		n("young:1.0.0-rev1-b1.1", "4"),
		n("same:1.0.0-rev1-b1.1", "e"),
		n("cache:7-rev1", "5"),
		n("mail:1.0.0-rev1-b10.1", "6"),
	}
	s := Compare(scheme("rev"), a, b, func(digest string) bool { return digest == d("6") })
	got := map[string]Class{}
	for _, c := range s.Changed {
		got[c.Repository+" "+c.From+" > "+c.To] = c.Class
	}
	want := map[string]Class{
		"r.example/app 2.6.2-rev1-b5.1 > 2.6.2-rev1-b5.2":   Rebuild,
		"r.example/web 1.0.0-rev9-b1.1 > 1.0.0-rev10-b1.1":  ImageFix,
		"r.example/db 3.1.0-rev1-b1.1 > 3.2.0-rev1-b1.1":    NewVersion,
		"r.example/old 1.0.0-rev1-b1.1 > ":                  Gone,
		"r.example/young  > 1.0.0-rev1-b1.1":                New,
		"r.example/cache 7-rev1 > 7-rev1":                   Unordered,
		"r.example/mail 1.0.0-rev1-b2.1 > 1.0.0-rev1-b10.1": Security,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	const sentence = "2 rebuilds, 1 of them security, 1 image fix, 1 new version, 1 other of unknown order, 1 new image, 1 gone, 1 same"
	if s.Sentence() != sentence {
		t.Errorf("%s", s.Sentence())
	}
	const back = "4 older than before, 1 other of unknown order, 1 new image, 1 gone, 1 same"
	if got := Compare(scheme("rev"), b, a, nil).Sentence(); got != back {
		t.Errorf("the other way: %s", got)
	}
	if s := Compare(scheme("rev"), a, a, nil); len(s.Changed) != 0 || s.Same != 7 {
		t.Errorf("with itself: %+v", s)
	}
}
