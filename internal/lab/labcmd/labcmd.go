package labcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/lab/supervisor"
	"github.com/refit-dev/refit/internal/text"
)

// settings are the flags all lab commands share.
type settings struct{ name, stateDir string }

func (s *settings) open() (*lab.Lab, error) {
	l, err := lab.Open(s.name, s.stateDir)
	return l, console.WithExit(console.ExitBlocked, err)
}

// Main runs the command line and returns the exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)   // a second signal ends what does not end by itself
	klog.SetLogger(logr.Discard()) // the client library's own log is no answer and no progress
	return console.Execute(ctx, New(), args[1:], "interrupted; refit-lab status shows what there is, refit-lab down removes it")
}

// New is the root command.
func New() *cobra.Command {
	s := &settings{}
	c := &cobra.Command{
		Use:   "refit-lab",
		Short: "Create real Kubernetes clusters on this machine, to try and test refit",
		Long: `A lab is a Kubernetes cluster made by real kubeadm on this machine. Its nodes are
namespaces with the real systemd as pid 1, their own containerd, kubelet and disk.
No node has a way out. Needs root and Linux; the first time, everything is built
from source and kept in the user's cache directory.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.SetOut(text.CleanWriter(os.Stdout))
	c.SetErr(text.CleanWriter(os.Stderr))
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return console.UsageError(err) })
	c.PersistentFlags().StringVar(&s.name, "name", defaultName(), "name of the lab ($REFIT_LAB)")
	c.PersistentFlags().StringVar(&s.stateDir, "state-dir", "", "directory of all labs (default "+lab.DefaultStateDir()+")")
	c.AddCommand(newUp(s), newDown(s), newStatus(s), newKubeconfig(s), newExec(s), newRsh(s), newLogs(s),
		newReboot(s), newCrash(s), newOn(s), newInsert(s), newEject(s), newOutside(s), newComponents(), newDemo(), newSimulate())
	return c
}

func defaultName() string {
	if name := os.Getenv("REFIT_LAB"); name != "" {
		return name
	}
	return lab.DefaultName
}

func newUp(s *settings) *cobra.Command {
	o := lab.Options{}
	var disks map[string]string
	c := &cobra.Command{
		Use:   "up",
		Short: "Create a lab cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(lab.Runtimes, o.Runtime) {
				return console.UsageErrorf("--runtime %s: this lab knows %s", o.Runtime, strings.Join(lab.Runtimes, ", "))
			}
			var err error
			if o.DiskSize, err = parseSizes(disks); err != nil {
				return console.UsageError(err)
			}
			if err := lab.Preflight(); err != nil {
				return console.WithExit(console.ExitBlocked, err)
			}
			o.Name, o.StateDir = s.name, s.stateDir
			o.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
			l, err := lab.Up(cmd.Context(), o)
			if _, already := errors.AsType[lab.ErrUp](err); already {
				return console.WithExit(console.ExitBlocked, err)
			}
			if err != nil {
				return err
			}
			if !o.Bare {
				fmt.Fprintln(cmd.OutOrStdout(), l.Kubeconfig())
			}
			return nil
		},
	}
	versions := components.Versions()
	c.Flags().IntVar(&o.Nodes, "nodes", 3, "number of nodes")
	c.Flags().IntVar(&o.ControlPlanes, "control-planes", 1, "how many of them run the control plane")
	c.Flags().StringVar(&o.Version, "version", versions[len(versions)-1], "Kubernetes version: "+strings.Join(versions, ", ")+"; of a distribution with its build, as v1.36.3+k3s1")
	c.Flags().StringVar(&o.Runtime, "runtime", lab.RuntimeContainerd, "container runtime of the nodes: containerd, crio, or mixed (CRI-O on the last worker)")
	c.Flags().StringVar(&o.Distribution, "distribution", "", "run a look-alike of a distribution instead of kubeadm: "+strings.Join(components.LookAlikes, ", "))
	c.Flags().StringVar(&o.Datastore, "datastore", "", "datastore of a distribution's server: etcd (default), or sqlite on k3s")
	c.Flags().StringToStringVar(&disks, "disk", nil, "disk size of a node, as in n2=2Gi; the name \"all\" is for all others")
	c.Flags().StringVar(&o.OSImage, "os-image", "", "OCI layout of an OS image that the workers, or the only node, boot through libostree (the firmware is simulated)")
	c.Flags().BoolVar(&o.Bare, "bare", false, "nodes only, no cluster")
	return c
}

// parseSizes reads sizes like 600M, 2Gi or plain bytes.
func parseSizes(texts map[string]string) (map[string]int64, error) {
	sizes := map[string]int64{}
	for node, text := range texts {
		number, factor := strings.TrimSuffix(text, "i"), int64(1)
		for i, unit := range []string{"K", "M", "G"} {
			if strings.HasSuffix(number, unit) {
				number, factor = strings.TrimSuffix(number, unit), 1<<(10*(i+1))
			}
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("disk size %q of %s: use a number with K, M or G", text, node)
		}
		if node == "all" {
			node = ""
		}
		sizes[node] = n * factor
	}
	return sizes, nil
}

func newDown(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Delete a lab cluster in any state",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return lab.DownIn(cmd.Context(), s.name, s.stateDir)
		},
	}
}

func newStatus(s *settings) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "status",
		Short: "List the nodes of a lab and their power state",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := s.open()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
			defer cancel()
			status, err := l.Status(ctx)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), status)
			}
			return printStatus(cmd.OutOrStdout(), status)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

func printJSON(out io.Writer, value any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

func printStatus(out io.Writer, s *lab.Status) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tPOWER\tPID\tBOOTS\tSINCE\tLAST")
	for _, n := range s.Nodes {
		power := "off"
		if n.On {
			power = "on"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\n", n.Name, power, n.PID, n.Boots, n.Since.Format(time.RFC3339), n.Last)
	}
	return t.Flush()
}

func newKubeconfig(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := s.open()
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), l.Kubeconfig())
			return nil
		},
	}
}

func newExec(s *settings) *cobra.Command {
	c := &cobra.Command{
		Use:     "exec NODE COMMAND [ARGUMENT...]",
		Short:   "Run a command in a node",
		Example: "  refit-lab exec n2 systemctl status kubelet --no-pager",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := s.open()
			if err != nil {
				return err
			}
			argv := args[1:]
			if argv[0] == "--" && len(argv) > 1 { // as kubectl exec wants it
				argv = argv[1:]
			}
			return run(cmd, l, args[0], argv...)
		},
	}
	c.Flags().SetInterspersed(false) // flags after NODE are the command's
	return c
}

// run passes the standard streams through. An exit status of the command is
// no error of ours: it is passed on without a word.
func run(cmd *cobra.Command, l *lab.Lab, node string, argv ...string) error {
	err := l.Exec(cmd.Context(), node, cmd.InOrStdin(), text.RawWriter(cmd.OutOrStdout()), text.RawWriter(cmd.ErrOrStderr()), argv...)
	if status, ok := errors.AsType[*exec.ExitError](err); ok {
		return console.SilentExit(supervisor.ExitStatus(status))
	}
	return err
}

func newLogs(s *settings) *cobra.Command {
	var console, follow bool
	c := &cobra.Command{
		Use:   "logs NODE [UNIT]",
		Short: "Show the journal or the console of a node",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := s.open()
			if err != nil {
				return err
			}
			if console {
				return copyFile(cmd.OutOrStdout(), filepath.Join(l.Dir, "nodes", args[0], "console.log"))
			}
			argv := []string{"journalctl", "--no-pager", "-b"}
			if follow {
				argv = append(argv, "-f")
			}
			if len(args) == 2 {
				argv = append(argv, "-u", args[1])
			}
			return run(cmd, l, args[0], argv...)
		},
	}
	c.Flags().BoolVar(&console, "console", false, "show the console, also of a node that is off")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "follow new lines")
	return c
}

func copyFile(out io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(out, f)
	return err
}

func newReboot(s *settings) *cobra.Command {
	return powerCommand(s, "reboot NODE", "Reboot a node and wait for it", (*lab.Lab).Reboot)
}

func newCrash(s *settings) *cobra.Command {
	return powerCommand(s, "crash NODE", "Cut the power of a node, restore it and wait for the node", (*lab.Lab).Crash)
}

func newOn(s *settings) *cobra.Command {
	return powerCommand(s, "on NODE", "Power on a node that was shut down and wait for it", (*lab.Lab).PowerOn)
}

func powerCommand(s *settings, use, short string, do func(*lab.Lab, context.Context, string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		l, err := s.open()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Minute)
		defer cancel()
		return do(l, ctx, args[0])
	}}
}

func newInsert(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "insert NODE FILE",
		Short: "Attach a file to a node as a block device and print the device",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := s.open()
			if err != nil {
				return err
			}
			device, err := l.Insert(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), device)
			return nil
		},
	}
}

func newEject(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "eject NODE FILE",
		Short: "Detach a file from a node",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := s.open()
			if err != nil {
				return err
			}
			return l.Eject(cmd.Context(), args[0], args[1])
		},
	}
}

func newOutside(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "outside",
		Short: "Count packets and DNS queries that tried to leave the lab",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := s.open()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
			defer cancel()
			o, err := l.RegistryRequests(ctx)
			if err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), o)
		},
	}
}
