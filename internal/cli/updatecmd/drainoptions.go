package updatecmd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
)

type drainFlags struct {
	skip, unowned  string
	grace, timeout time.Duration
	keepData       bool
	reset          bool
}

func newDrainOptions(a *inputs.Access) *cobra.Command {
	var f drainFlags
	c := &cobra.Command{
		Use:   "drain-options [UPDATE]",
		Short: "Set or show the drain options of one update",
		Long: `Set or show the drain options of one update. A flag replaces its earlier value;
--reset removes all.

With any option, refit evicts pods and never deletes them, and it respects every
disruption budget. refit explain node/NAME shows the effect.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().NFlag() == 0 {
				cl, err := a.Client()
				if err != nil {
					return err
				}
				u, err := inputs.FindUpdate(cmd.Context(), cl, args)
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
	fl.StringVar(&f.skip, "skip", "", "label selector: such pods stay on their node and end with its update")
	fl.StringVar(&f.unowned, "evict-unowned", "", "label selector: evict such pods although no owner recreates them")
	fl.DurationVar(&f.grace, "grace", 0, "grace period for every pod, instead of its own (at least 1s)")
	fl.DurationVar(&f.timeout, "timeout", 0, "halt when a drain takes longer, instead of the pools' timeout (0: never)")
	fl.BoolVar(&f.keepData, "keep-emptydir-data", false, "refuse to evict pods with emptyDir data")
	fl.BoolVar(&f.reset, "reset", false, "reset to the default drain")
	return c
}

func (f drainFlags) check() error {
	for name, s := range map[string]string{"skip": f.skip, "evict-unowned": f.unowned} {
		if s == "" {
			continue
		}
		if _, err := metav1.ParseToLabelSelector(s); err != nil {
			return console.UsageError(fmt.Errorf("--%s %q is not a label selector: %w", name, s, err))
		}
	}
	if f.grace != 0 && f.grace < time.Second {
		return console.UsageError(errors.New("--grace must be at least 1s: with 0 a pod would disappear from the API while it still runs"))
	}
	if f.timeout < 0 {
		return console.UsageError(errors.New("--timeout must not be negative"))
	}
	return nil
}

// apply merges the flags into the stored options; nil is an unset flag.
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

// DrainWords describes the drain options of an update in a sentence.
func DrainWords(d *v1alpha1.DrainOptions) string {
	const usual = "drains nodes with default options"
	if d == nil {
		return usual
	}
	var parts []string
	if d.SkipSelector != nil {
		parts = append(parts, "pods with "+metav1.FormatLabelSelector(d.SkipSelector)+" stay")
	}
	if d.EvictUnownedSelector != nil {
		parts = append(parts, "pods with "+metav1.FormatLabelSelector(d.EvictUnownedSelector)+" are evicted without an owner")
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
	return "drains nodes with: " + strings.Join(parts, "; ")
}
