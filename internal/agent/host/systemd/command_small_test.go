package systemd

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/fsutil/disktest"
)

// A disk that becomes full does not end the command. Its output is lost, and its result is written
// when there is space.
func TestAFullDiskDoesNotEndTheCommand(t *testing.T) {
	disktest.Each(t, disktest.Small, func(t *testing.T, f *disktest.FS) {
		log, result := f.Path("log"), f.Path("result.json")
		went := filepath.Join(t.TempDir(), "went")
		if err := os.WriteFile(log, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		f.Fill()
		ended := make(chan error, 1)
		go func() {
			ended <- RecordCommand(context.Background(), log, result, []string{"sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo some words of output || exit 9; i=$((i+1)); done; echo > " + went})
		}()
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(went); err == nil {
				break
			}
		}
		if _, err := os.Stat(went); err != nil {
			t.Error("the command did not come to its end")
		}
		select {
		case err := <-ended:
			t.Fatalf("its end was given up while there was no room: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		f.Free()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		r, err := ReadCommandResult(result)
		if err != nil || r == nil || r.Exit != 0 || r.Error != "" {
			t.Fatalf("%+v %v", r, err)
		}
	})
}
