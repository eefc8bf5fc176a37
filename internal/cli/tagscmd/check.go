package tagscmd

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert/auditfacts"
	"github.com/refit-dev/refit/internal/imagetag"
	"github.com/refit-dev/refit/internal/imagetag/audit"
	"github.com/refit-dev/refit/internal/imagetag/lint"
	"github.com/refit-dev/refit/internal/imagetag/restartforecast"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/render"
)

type checkFlags struct {
	namespace, dump, published, config string
	files                              []string
	event, node, registry              string
	offline, kubelets, registries      bool
	dockerConfig                       string
	output                             *string
}

func newCheck(a *inputs.Access) *cobra.Command {
	f := &checkFlags{}
	c := &cobra.Command{
		Use: "check", Short: "Compare running images with their tags, or predict a restart",
		Long: `Without --event, print one table for pods, static pods, network agents, the sandbox
		image and the operating system. It shows which are current, skewed between replicas,
		changing at the next restart, unable to restart, behind their tag, and so on. The
		first line is the summary.

		With --event crash, recreate, reboot, reschedule, new-node or scale-up, predict the
		image of each container after the event, with the registry up or down. It is the same
		image, another one (which), or none, and why. With -f FILE, predict for the manifests
		in FILE, as if they were created now.

The content of registries comes from ImageTracks, from --published FILE (documents as
refit tags plan reads them), and with --ask from the registries themselves, with the
credentials of --docker-config FILE or none. Other content is unknown.

A dump is the output of kubectl:
  kubectl get nodes,pods,nodeupdates.refit.dev,contents.refit.dev,imagetracks.refit.dev,deployments,daemonsets,statefulsets,cronjobs -A -o json

Exit codes: 0 no action needed (with --event: every container starts the image that
runs now), 1 the cluster is unreachable, 2 a file cannot be read, 3 action needed.`,
		Example: "  refit tags check\n  refit tags check --event reboot --node n2 --registry down\n  refit tags check --dump dump.json --offline -o json",
		Args:    console.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.run(cmd, a)
		},
	}
	f.output = console.OutputFlag(c)
	fl := c.Flags()
	fl.StringVarP(&f.namespace, "namespace", "n", "", "only objects in this namespace")
	fl.StringVar(&f.dump, "dump", "", "read a dump of a cluster, not the cluster; - is standard input")
	fl.StringArrayVarP(&f.files, "file", "f", nil, "check manifests, as if they were created now; may be repeated")
	fl.StringVar(&f.event, "event", "", "crash, recreate, reboot, reschedule, new-node, scale-up, or all")
	fl.StringVar(&f.node, "node", "", "only pods of this node")
	fl.StringVar(&f.registry, "registry", "", "up or down (default up, with --offline down)")
	fl.BoolVar(&f.offline, "offline", false, "the site has no registry")
	fl.StringVar(&f.published, "published", "", "content of registries, by repository and tag")
	fl.BoolVar(&f.registries, "ask", false, "resolve each running tag at its registry")
	fl.StringVar(&f.dockerConfig, "docker-config", "", "credentials for --ask, as docker login writes them")
	fl.BoolVar(&f.kubelets, "kubelets", false, "read every kubelet's configuration (needs the right to nodes/proxy)")
	fl.StringVar(&f.config, "config", "", "declared tag schemes (default "+inputs.LintConfigName+" if it exists)")
	_ = c.RegisterFlagCompletionFunc("event", cobra.FixedCompletions(append(restartforecast.Events(), "all"), cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("registry", cobra.FixedCompletions([]string{restartforecast.Up, restartforecast.Down}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (f *checkFlags) check() error {
	switch {
	case f.event != "" && f.event != "all" && !slices.Contains(restartforecast.Events(), f.event):
		return console.UsageErrorf("--event %s is not known: use %v or all", f.event, restartforecast.Events())
	case f.registry != "" && f.registry != restartforecast.Up && f.registry != restartforecast.Down:
		return console.UsageErrorf("--registry %s: use up or down", f.registry)
	}
	if f.registry == "" {
		f.registry = restartforecast.Up
		if f.offline {
			f.registry = restartforecast.Down
		}
	}
	if len(f.files) > 0 && f.event == "" {
		f.event = restartforecast.ScaleUp
	}
	return console.CheckOutput(*f.output)
}

func (f *checkFlags) run(cmd *cobra.Command, a *inputs.Access) error {
	conf, err := inputs.ReadLintConfig(f.config)
	if err != nil {
		return err
	}
	objects, err := gatherObjects(cmd.Context(), a, f.dump, f.kubelets)
	if err != nil {
		return err
	}
	declared, err := addPublished(f.published, &objects)
	if err != nil {
		return err
	}
	if f.registries {
		if err := pollRegistries(cmd.Context(), a, f.dockerConfig, &objects); err != nil {
			return err
		}
	}
	facts := objects.Facts()
	if f.node != "" && !slices.ContainsFunc(facts.Nodes, func(n model.ImageNode) bool { return n.Name == f.node }) {
		return console.UsageErrorf("node %q not found", f.node)
	}
	if f.event != "" {
		return f.forecast(cmd, facts)
	}
	oracle := restartforecast.New(facts.Site())
	r := audit.NewReport(audit.Facts{Offline: f.offline, Nodes: facts.Nodes, Pods: f.selectPods(facts.Pods), Published: facts.Published, Same: facts.Same, Previous: facts.Previous,
		Scheme: schemesOf(conf, facts.Schemes, declared),
		Restart: func(p *model.ImagePod, u *model.ImageUse) []model.RestartAnswer {
			return []model.RestartAnswer{oracle.Forecast(p, u, restartforecast.Crash, f.registry), oracle.Forecast(p, u, restartforecast.Reboot, f.registry)}
		}})
	if err := render.Images(cmd.OutOrStdout(), *f.output, r); err != nil {
		return err
	}
	if r.Act {
		return console.SilentExit(console.ExitBlocked)
	}
	return nil
}

// selectPods returns the selected pods.
func (f *checkFlags) selectPods(pods []model.ImagePod) []model.ImagePod {
	if f.namespace == "" && f.node == "" {
		return pods
	}
	var out []model.ImagePod
	for _, p := range pods {
		if (f.namespace == "" || p.Namespace == f.namespace) && (f.node == "" || p.Node == f.node) {
			out = append(out, p)
		}
	}
	return out
}

// schemesOf returns the schemes of repositories: the user's configuration first, then
// those of tracks and documents.
func schemesOf(conf lint.Config, declared ...map[string]string) func(string) (imagetag.Scheme, bool) {
	known := map[string]imagetag.Scheme{}
	return func(repository string) (imagetag.Scheme, bool) {
		if s, ok := known[repository]; ok {
			return s, s.Name() != ""
		}
		name, ok := conf.Scheme(repository)
		for i := 0; !ok && i < len(declared); i++ {
			name, ok = declared[i][repository]
		}
		s, err := imagetag.ByName(name)
		if err != nil || !ok {
			s = imagetag.Scheme{}
		}
		known[repository] = s
		return s, s.Name() != ""
	}
}

// forecast predicts the effect of an event.
func (f *checkFlags) forecast(cmd *cobra.Command, facts auditfacts.Facts) error {
	pods := f.selectPods(slices.Concat(facts.Pods, facts.Templates))
	if len(f.files) > 0 {
		var err error
		if pods, err = f.templates(cmd); err != nil {
			return err
		}
	}
	events := []string{f.event}
	if f.event == "all" {
		events = restartforecast.Events()
	}
	oracle := restartforecast.New(facts.Site())
	v := render.Forecast{APIVersion: "refit.dev/restart/v1", Kind: "RestartForecast", Event: f.event, Registry: f.registry, Node: f.node, Counts: map[string]int{}, Answers: []render.ForecastRow{}}
	for i := range pods {
		p := &pods[i]
		for j := range p.Uses {
			u := &p.Uses[j]
			for _, e := range events {
				a := oracle.Forecast(p, u, e, f.registry)
				v.Counts[a.Outcome]++
				v.Answers = append(v.Answers, render.ForecastRow{Pod: p.Key(), Node: p.Node, Owner: p.Owner(), Container: u.Container, Kind: u.Kind,
					Image: u.Image, Policy: string(u.Policy), Critical: p.Critical, RestartAnswer: a})
			}
		}
	}
	v.Verdict = verdictOf(v)
	if err := render.Forecasts(cmd.OutOrStdout(), *f.output, v); err != nil {
		return err
	}
	if v.Counts[model.OutcomeChanges]+v.Counts[model.OutcomeFails]+v.Counts[model.OutcomeUnknown] > 0 {
		return console.SilentExit(console.ExitBlocked)
	}
	return nil
}

// verdictOf counts the outcomes in one sentence.
func verdictOf(v render.Forecast) string {
	where := ""
	if v.Node != "" {
		where = " of node " + v.Node
	}
	out := fmt.Sprintf("%s%s, registry %s:", v.Event, where, v.Registry)
	for _, w := range []struct{ outcome, says string }{
		{model.OutcomeSame, "%d the same,"}, {model.OutcomeStarts, "%d start,"}, {model.OutcomeChanges, "%d change,"},
		{model.OutcomeFails, "%d cannot start,"}, {model.OutcomeUnknown, "%d unknown,"},
	} {
		if n := v.Counts[w.outcome]; n > 0 || w.outcome == model.OutcomeSame {
			out += " " + fmt.Sprintf(w.says, n)
		}
	}
	return out[:len(out)-1] + "."
}

// templates returns the pods of manifests that do not exist yet.
func (f *checkFlags) templates(cmd *cobra.Command) ([]model.ImagePod, error) {
	objects, err := inputs.ReadManifests(cmd.InOrStdin(), f.files)
	if err != nil {
		return nil, err
	}
	var out []model.ImagePod
	for _, o := range objects {
		if len(o.Uses) == 0 || f.namespace != "" && o.Namespace != f.namespace {
			continue
		}
		p := model.ImagePod{Namespace: o.Namespace, Name: o.Name, OwnerKind: o.Kind, OwnerName: o.Name, Static: o.Static, HostNetwork: o.HostNetwork,
			Critical: o.Critical, NodeSelector: o.NodeSelector, Tolerates: o.Tolerates}
		for _, u := range o.Uses {
			p.Uses = append(p.Uses, u.ImageUse)
		}
		out = append(out, p)
	}
	return out, nil
}
