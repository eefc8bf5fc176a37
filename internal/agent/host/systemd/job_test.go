package systemd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// systemd reports the result of a job once, on the open connection. If a re-execution of systemd
// cut it, there is no second report: the wait must end by itself.
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
