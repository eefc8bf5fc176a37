package systemd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// systemd says how a job ended once, to the connection it knows. If that was cut
// (a re-execution of systemd), nobody says it again: the wait must end by itself.
func TestAJobWhoseEndIsLostEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		go func() {
			ended <- job(context.Background(), "start", "x.service", func(chan<- string) (int, error) { return 1, nil })
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case err := <-ended:
			if err == nil {
				t.Fatal("called done")
			}
		default:
			t.Fatal("still waiting after an hour")
		}
	})
}
