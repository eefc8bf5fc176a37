package kernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Holders that remove the file when they are done must still never meet.
func TestThereIsOneHolderAtATimeAlsoWhenTheFileIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "x.lock")
	var holders, most int
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 3 {
				release, err := AcquireLock(t.Context(), path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				holders++
				most = max(most, holders)
				mu.Unlock()
				mu.Lock()
				holders--
				mu.Unlock()
				// From here on the next one may hold a file of the same name.
				if err := os.Remove(path); err != nil {
					t.Error(err)
				}
				release()
			}
		})
	}
	all.Wait()
	if most != 1 {
		t.Errorf("%d holders at once", most)
	}
}

func TestWaiterOfALockIsNotifiedAndCanStop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	release, err := AcquireLock(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := AcquireLock(ctx, path, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a lock that is held: %v", err)
	}
	release()
	again, err := AcquireLock(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
