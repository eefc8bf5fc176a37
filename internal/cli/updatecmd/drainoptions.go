package updatecmd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/exit"
)

type drainFlags struct {
	skip, unowned  string
	grace, timeout time.Duration
	keepData       bool
	reset          bool
}

func newDrainOptions(a *cluster.Access) *cobra.Command {
	var f drainFlags
	c := &cobra.Command{
		Use:   "drain-options [UPDATE]",
		Short: "Say how this one update empties nodes, or show what was said",
		Long: `Say how this one update empties nodes, or show what was said. What is given
replaces what was said before by the same flag; --reset takes all of it back.

Pods are evicted, never deleted, and no disruption budget is gone around,
whatever is said here. refit explain node/NAME shows what it comes to.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().NFlag() == 0 {
				cl, err := a.Client()
				if err != nil {
					return err
				}
				u, err := cluster.Update(cmd.Context(), cl, args)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(a.Out, "%s %s\n", u.Name, DrainWords(u.Spec.Drain))
				return err
			}
			if err := f.check(); err != nil {
				return err
			}
			changed := map[string]bool{}
			for _, name := range []string{"skip", "evict-unowned", "grace", "timeout", "keep-emptydir-data"} {
				changed[name] = cmd.Flags().Changed(name)
			}
			return Change(cmd.Context(), a, args, func(u *v1alpha1.ClusterUpdate) (string, error) {
				u.Spec.Drain = f.apply(u.Spec.Drain, changed)
				return DrainWords(u.Spec.Drain), nil
			})
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.skip, "skip", "", "label selector: such pods stay on their node and die with its update")
	fl.StringVar(&f.unowned, "evict-unowned", "", "label selector: such pods may be evicted although nothing makes them again")
	fl.DurationVar(&f.grace, "grace", 0, "time to end for every pod, instead of its own (at least 1s)")
	fl.DurationVar(&f.timeout, "timeout", 0, "halt when a drain takes longer, instead of what the pools say (0: never)")
	fl.BoolVar(&f.keepData, "keep-emptydir-data", false, "refuse pods whose emptyDir data would be gone")
	fl.BoolVar(&f.reset, "reset", false, "empty nodes as usual again")
	return c
}

func (f drainFlags) check() error {
	for name, s := range map[string]string{"skip": f.skip, "evict-unowned": f.unowned} {
		if s == "" {
			continue
		}
		if _, err := metav1.ParseToLabelSelector(s); err != nil {
			return exit.Usage(fmt.Errorf("--%s %q is no label selector: %w", name, s, err))
		}
	}
	if f.grace != 0 && f.grace < time.Second {
		return exit.Usage(errors.New("--grace must be at least 1s: with 0 a pod would be gone from the API while it still runs"))
	}
	if f.timeout < 0 {
		return exit.Usage(errors.New("--timeout must not be negative"))
	}
	return nil
}

// apply lays what was said over what was said before; nil is nothing said.
func (f drainFlags) apply(before *v1alpha1.DrainOptions, changed map[string]bool) *v1alpha1.DrainOptions {
	d := &v1alpha1.DrainOptions{}
	if before != nil && !f.reset {
		d = before.DeepCopy()
	}
	selector := func(s string) *metav1.LabelSelector {
		if s == "" {
			return nil
		}
		l, _ := metav1.ParseToLabelSelector(s) // check has read it
		return l
	}
	if changed["skip"] {
		d.SkipSelector = selector(f.skip)
	}
	if changed["evict-unowned"] {
		d.EvictUnownedSelector = selector(f.unowned)
	}
	if changed["grace"] {
		d.GracePeriodSeconds = nil
		if s := int64(f.grace / time.Second); s > 0 {
			d.GracePeriodSeconds = &s
		}
	}
	if changed["timeout"] {
		s := int32(f.timeout / time.Second)
		d.TimeoutSeconds = &s
	}
	if changed["keep-emptydir-data"] {
		d.KeepEmptyDirData = f.keepData
	}
	if *d == (v1alpha1.DrainOptions{}) {
		return nil
	}
	return d
}

// DrainWords says in a sentence how an update empties nodes.
func DrainWords(d *v1alpha1.DrainOptions) string {
	const usual = "empties nodes as usual"
	if d == nil {
		return usual
	}
	var parts []string
	if d.SkipSelector != nil {
		parts = append(parts, "pods with "+metav1.FormatLabelSelector(d.SkipSelector)+" stay")
	}
	if d.EvictUnownedSelector != nil {
		parts = append(parts, "pods with "+metav1.FormatLabelSelector(d.EvictUnownedSelector)+" may be lost")
	}
	if d.KeepEmptyDirData {
		parts = append(parts, "pods with emptyDir data are refused")
	}
	if d.GracePeriodSeconds != nil {
		parts = append(parts, fmt.Sprintf("every pod has %d s to end", *d.GracePeriodSeconds))
	}
	if d.TimeoutSeconds != nil {
		parts = append(parts, fmt.Sprintf("a drain halts the update after %d s", *d.TimeoutSeconds))
	}
	if len(parts) == 0 {
		return usual
	}
	return "empties nodes so: " + strings.Join(parts, "; ")
}
