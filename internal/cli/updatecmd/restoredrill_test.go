package updatecmd

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

// The command asks the agent, waits for its answer to this question, and exits by it.
func TestARestoreIsRehearsedByTheAgent(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC))
	for name, c := range map[string]struct {
		answer *v1alpha1.RestoreDrill
		code   int
		says   []string
	}{
		"restored": {&v1alpha1.RestoreDrill{Datastore: "sqlite", Snapshot: "/var/lib/refit/rollback/u/sqlite-snapshot", SnapshotAt: &at, Bytes: 3 << 20, Objects: 412, Milliseconds: 840}, 0,
			[]string{"restored its snapshot of sqlite into a scratch directory and read it whole, in 0.8 s", "412 objects", "2026-11-28T10:00:00Z", "not touched"}},
		"damaged": {&v1alpha1.RestoreDrill{Datastore: "etcd", Problem: &v1alpha1.NodeProblem{Reason: v1alpha1.ReasonSnapshotUnusable, Object: "snap", Message: "it does not match its checksum", Fix: "Save another."}},
			console.ExitFailed, []string{"restored no snapshot", "SnapshotUnusable: snap: it does not match its checksum", "Save another."}},
		"none":      {&v1alpha1.RestoreDrill{Problem: &v1alpha1.NodeProblem{Reason: v1alpha1.ReasonSnapshotMissing, Object: "n2", Message: "none"}}, console.ExitBlocked, []string{"SnapshotMissing"}},
		"no answer": {nil, console.ExitInProgress, nil},
	} {
		t.Run(name, func(t *testing.T) {
			answers := interceptor.NewClient(site(t, func(n *v1alpha1.NodeUpdate) { n.Status.RestoreDrill = &v1alpha1.RestoreDrill{ID: "an older one"} }).(client.WithWatch),
				interceptor.Funcs{Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					err := w.Get(ctx, key, o, opts...)
					if nu, ok := o.(*v1alpha1.NodeUpdate); ok && c.answer != nil && nu.Annotations[v1alpha1.AnnotationRestoreDrill] != "" {
						nu.Status.RestoreDrill = c.answer.DeepCopy()
						nu.Status.RestoreDrill.ID = nu.Annotations[v1alpha1.AnnotationRestoreDrill]
					}
					return err
				}})
			var out bytes.Buffer
			d := &drillCommand{Access: &inputs.Access{Out: &out, Err: io.Discard}, node: "n2", output: "table", yes: true, timeout: 1500 * time.Millisecond}
			if err := d.requestRestore(t.Context(), answers); console.ExitCode(err) != c.code {
				t.Errorf("exit code %d, want %d: %v", console.ExitCode(err), c.code, err)
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, out.String())
				}
			}
		})
	}
}
