package gatefacts

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// An answer is read once while it is fresh, used while it is read anew, and
// never used for another question.
func TestMemo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m memo[int]
		asked := 0
		var fail error
		takes := time.Duration(0)
		get := func(now time.Time, key string) (int, error) {
			return m.get(t.Context(), now, time.Minute, key, func(context.Context) (int, error) {
				time.Sleep(takes)
				asked++
				return asked, fail
			})
		}
		want := func(what string, v int, err error, wantV int, wantErr error) {
			t.Helper()
			if v != wantV || !errors.Is(err, wantErr) {
				t.Errorf("%s: %d %v, want %d %v", what, v, err, wantV, wantErr)
			}
		}
		v, err := get(noon, "a")
		want("the first look waits for the answer", v, err, 1, nil)
		v, err = get(noon.Add(59*time.Second), "a")
		want("a fresh answer is not read again", v, err, 1, nil)
		takes = time.Second
		v, err = get(noon.Add(2*time.Minute), "a")
		want("an old one is used while it is read anew", v, err, 1, nil)
		time.Sleep(2 * takes)
		v, err = get(noon.Add(2*time.Minute), "a")
		want("the next look has the new one", v, err, 2, nil)
		takes = time.Minute
		v, err = get(noon.Add(2*time.Minute), "b")
		want("another question has no answer yet", v, err, 0, errPending)
		time.Sleep(2 * takes)
		v, err = get(noon.Add(2*time.Minute), "b")
		want("and then it has", v, err, 3, nil)

		away := errors.New("the API server is unavailable")
		fail, takes = away, 0
		v, err = get(noon.Add(4*time.Minute), "b")
		want("what cannot be read anew is used for a while", v, err, 3, nil)
		synctest.Wait()
		v, err = get(noon.Add(time.Hour), "b")
		synctest.Wait()
		want("not for ever", v, err, 0, away)
		v, err = get(noon.Add(time.Hour), "c")
		want("a question that fails says so", v, err, 0, away)
		fail = nil
		v, err = get(noon.Add(time.Hour), "c")
		want("and is asked again", v, err, 7, nil)
	})
}
