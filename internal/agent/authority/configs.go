package authority

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/nodeconfig"
)

// ConfigReader reads the sources of a node's rendered configuration.
type ConfigReader interface {
	RunReader
	ClusterUpdates(ctx context.Context) ([]v1alpha1.ClusterUpdate, error)
	NodeConfigs(ctx context.Context) ([]v1alpha1.NodeConfig, error)
	UpdatePools(ctx context.Context) ([]v1alpha1.UpdatePool, error)
	OSImages(ctx context.Context) ([]v1alpha1.OSImage, error)
	// ConfigMap reads one of namespace refit-nodes, nil if there is none.
	ConfigMap(ctx context.Context, name string) (*convert.ConfigMap, error)
	// NodeLabels are those of this node.
	NodeLabels(ctx context.Context) (map[string]string, error)
}

// CheckConfig reports why a node does not follow a rendered configuration outside of a run,
// nil if it does. Its files, units and settings must be those of administrators'
// NodeConfigs. Drift is repaired only if the node's UpdatePool says so.
func CheckConfig(ctx context.Context, api ConfigReader, name string, c *model.NodeConfig) *model.Blocker {
	want, err := readWanted(ctx, api)
	if err != nil {
		return unreadableConfig(name, err)
	}
	return refusedConfig(name, refusesConfig(c, &want))
}

// CheckStage reports why a node does not fetch the OS image of a configuration ahead of its
// run, nil if it does. An update that administrators started must have it in its plan.
func CheckStage(ctx context.Context, api ConfigReader, node, name string, c *model.NodeConfig) *model.Blocker {
	all, err := api.ClusterUpdates(ctx)
	if err != nil {
		return unreadableConfig(name, err)
	}
	why := "no update that an administrator started has it in its plan"
	for i := range all {
		u := &all[i]
		if u.Spec.Start != v1alpha1.StartImmediate || u.Status.Plan == "" || len(u.Spec.Nodes) > 0 && !slices.Contains(u.Spec.Nodes, node) {
			continue
		}
		plan, err := readPlan(ctx, api, u.Status.Plan)
		if err != nil {
			why = err.Error() // of this update; another may have it
			continue
		}
		switch {
		case !planHasConfig(&plan, node, name):
			continue
		case u.Spec.PlanDigest == "":
			return checkImage(ctx, api, name, c)
		case u.Spec.PlanDigest == plan.Digest():
			return nil
		}
		why = "ClusterUpdate " + u.Name + " has it in another plan than the approved one"
	}
	return refusedConfig(name, why)
}

// planHasConfig reports whether the plan has a configuration for a node.
func planHasConfig(p *model.Plan, node, config string) bool {
	return slices.ContainsFunc(p.Hops(), func(hop model.Plan) bool {
		at := slices.IndexFunc(hop.Nodes, func(n model.NodePlan) bool { return n.Node == node })
		return at >= 0 && slices.ContainsFunc(hop.Nodes[at].Steps, func(s model.Step) bool { return s.Params[model.ParamConfig] == config })
	})
}

// refusesUnapprovedPlan checks the steps of a plan that no administrator approved by its
// digest. Only the controller chose them, so other objects of administrators must have them.
func refusesUnapprovedPlan(ctx context.Context, api ConfigReader, run *v1alpha1.NodeRun) (why string, err error) {
	for _, s := range run.Steps {
		if s.Updater == model.UpdaterStaticPod {
			return "a static pod is changed only by a plan that was approved by its digest (spec.planDigest)", nil
		}
		name := s.Params[model.ParamConfig]
		if name == "" {
			continue
		}
		c, err := readConfig(ctx, api, name)
		if err != nil {
			return "", err
		}
		v := checkImage(ctx, api, name, c)
		if v != nil && v.Waiting {
			return "", fmt.Errorf("configuration %s: %s", name, v.Message)
		}
		if v != nil {
			return "no administrator approved its plan by digest (spec.planDigest), and " + v.Message, nil
		}
	}
	return "", nil
}

func readConfig(ctx context.Context, api ConfigReader, name string) (*model.NodeConfig, error) {
	text, err := api.Content(ctx, name)
	if err != nil {
		return nil, err
	}
	if text.Type != v1alpha1.ContentConfig || v1alpha1.ContentName(v1alpha1.ContentConfig, text.Data) != name {
		return nil, fmt.Errorf("content %s does not match the digest in its name", name)
	}
	c := &model.NodeConfig{}
	if err := json.Unmarshal([]byte(text.Data), c); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	return c, nil
}

// checkImage is CheckConfig, and checks the OS image too.
func checkImage(ctx context.Context, api ConfigReader, name string, c *model.NodeConfig) *model.Blocker {
	want, err := readWanted(ctx, api)
	if err != nil {
		return unreadableConfig(name, err)
	}
	why := refusesConfig(c, &want)
	if why == "" {
		why = refusesOS(c.OS, &want)
	}
	return refusedConfig(name, why)
}

func unreadableConfig(name string, err error) *model.Blocker {
	return &model.Blocker{Reason: v1alpha1.ReasonApprovalUnreadable, Waiting: true, Object: "Content/" + name,
		Message: fmt.Sprintf("configuration %s waits: %v", name, err), Fix: "apply refit's rules for nodes (refit install), which let nodes read NodeConfigs, UpdatePools, OSImages and ClusterUpdates"}
}

func refusedConfig(name, why string) *model.Blocker {
	if why == "" {
		return nil
	}
	return &model.Blocker{Reason: v1alpha1.ReasonConfigNotApproved, Object: "Content/" + name,
		Message: "the controller names configuration " + name + ", which this node does not follow: " + why,
		Fix:     "nothing to do if a NodeConfig was just changed, or approve a plan that has it (refit apply). If no administrator asked for it, the controller's token may be stolen: revoke the token"}
}

// wanted is what administrators' objects require of this node.
type wanted struct {
	model.NodeConfig
	// repairs: an UpdatePool of the node asks for repair of drift.
	repairs bool
	// images are the finished OS images of the node's UpdatePools.
	images []string
	// problem is why the objects do not result in a configuration.
	problem string
}

func readWanted(ctx context.Context, api ConfigReader) (w wanted, err error) {
	of, err := api.NodeLabels(ctx)
	if err != nil {
		return w, err
	}
	pools, err := w.readPools(ctx, api, of)
	if err != nil {
		return w, err
	}
	configs, err := api.NodeConfigs(ctx)
	if err != nil {
		return w, err
	}
	var sources []nodeconfig.Source
	for i := range configs {
		if c := &configs[i]; appliesTo(c, pools, of) {
			s, err := convert.NodeConfigSource(ctx, api.ConfigMap, c)
			if err != nil {
				return w, err
			}
			sources = append(sources, s)
		}
	}
	merged, verdicts := nodeconfig.Merge(sources)
	w.NodeConfig = merged
	if len(verdicts) > 0 {
		w.problem = verdicts[0].Message
	}
	return w, nil
}

// readPools reads the UpdatePools that select the node, and returns their names.
func (w *wanted) readPools(ctx context.Context, api ConfigReader, of map[string]string) (pools []string, err error) {
	all, err := api.UpdatePools(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		p := &all[i]
		if !selects(&p.Spec.NodeSelector, of) {
			continue
		}
		pools = append(pools, p.Name)
		w.repairs = w.repairs || repairsDrift(&p.Spec)
		if p.Spec.OSImage != "" {
			w.images = append(w.images, p.Spec.OSImage)
		}
	}
	return pools, w.readImages(ctx, api)
}

// repairsDrift reports whether a pool has changes of other writers undone.
func repairsDrift(p *v1alpha1.UpdatePoolSpec) bool {
	return p.Drift == v1alpha1.DriftRepair || slices.ContainsFunc(p.DriftRules, func(r v1alpha1.DriftRule) bool { return r.Action == v1alpha1.DriftRepair })
}

// KubeadmPatches returns the directory of kubeadm's patches that this node's UpdatePool
// names, "" for none.
func KubeadmPatches(ctx context.Context, api ConfigReader) (string, error) {
	of, err := api.NodeLabels(ctx)
	if err != nil {
		return "", err
	}
	all, err := api.UpdatePools(ctx)
	if err != nil {
		return "", err
	}
	for i := range all {
		if p := &all[i]; p.Spec.KubeadmPatches != "" && selects(&p.Spec.NodeSelector, of) {
			return p.Spec.KubeadmPatches, nil
		}
	}
	return "", nil
}

// readImages replaces the names of OSImages by their images.
func (w *wanted) readImages(ctx context.Context, api ConfigReader) error {
	names := w.images
	w.images = nil
	if len(names) == 0 {
		return nil
	}
	all, err := api.OSImages(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if slices.Contains(names, all[i].Name) && all[i].Spec.Image != "" {
			w.images = append(w.images, all[i].Spec.Image)
		}
	}
	return nil
}

func appliesTo(c *v1alpha1.NodeConfig, pools []string, of map[string]string) bool {
	switch {
	case !c.DeletionTimestamp.IsZero():
		return false
	case len(c.Spec.Pools) == 0:
		return c.Spec.NodeSelector == nil || selects(c.Spec.NodeSelector, of)
	}
	return slices.ContainsFunc(c.Spec.Pools, func(p string) bool { return slices.Contains(pools, p) })
}

func selects(s *metav1.LabelSelector, of map[string]string) bool {
	sel, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && sel.Matches(labels.Set(of))
}

// refusesConfig compares a rendered configuration with what administrators want, part by
// part: a configuration that wants less is not refused. What an image brings is verified and
// never written, so it does not count here. The controller chooses the order of steps, and
// so the disruption of a change.
func refusesConfig(c *model.NodeConfig, want *wanted) string {
	if want.problem != "" {
		return "the NodeConfigs of this node result in no configuration: " + want.problem
	}
	if why := refusesParts(c, want); why != "" {
		return why
	}
	switch {
	case c.RepairsDrift() && !want.repairs:
		return "no UpdatePool of this node has drift: Repair, for all or by a rule"
	case c.Kubelet != "" && c.Kubelet != want.Kubelet:
		return "the NodeConfigs have other fields of the kubelet"
	case c.SandboxImage != "" && c.SandboxImage != want.SandboxImage:
		return "no NodeConfig has the sandbox image " + c.SandboxImage
	}
	return ""
}

// refusesParts compares the lists of a configuration.
func refusesParts(c *model.NodeConfig, want *wanted) string {
	for _, f := range c.Files {
		fromImage := f.InImage || f.Stale || f.AsImage
		if !fromImage && !slices.ContainsFunc(want.Files, func(w model.ConfigFile) bool { return sameFile(f, w) }) {
			return "no NodeConfig has the file " + f.Path + " with these contents, owner and mode"
		}
	}
	for _, u := range c.Units {
		if !slices.ContainsFunc(want.Units, func(w model.ConfigUnit) bool { return u.Name == w.Name && u.State == w.State }) {
			return "no NodeConfig has the unit " + u.Name + " " + u.State
		}
	}
	if x := firstMissing(c.Certificates, want.Certificates); x != nil {
		return "no NodeConfig wants the certificate " + x.Name + " so"
	}
	if x := firstMissing(c.External, want.External); x != nil {
		return "no NodeConfig has the field " + x.Path + " in " + x.File
	}
	return ""
}

// firstMissing is the first element of a list that another list does not have, nil if it has
// all.
func firstMissing[T comparable](list, other []T) *T {
	for i := range list {
		if !slices.Contains(other, list[i]) {
			return &list[i]
		}
	}
	return nil
}

func sameFile(a, b model.ConfigFile) bool {
	return a.Path == b.Path && a.Absent == b.Absent && a.Payload == b.Payload && a.Value() == b.Value()
}

// refusesOS checks the OS image and its arguments. An image that was built on the site is
// approved only by the digest of a plan.
func refusesOS(os *model.ConfigOS, want *wanted) string {
	if os == nil {
		return ""
	}
	if os.Image != "" && !slices.Contains(want.images, os.Image) {
		return fmt.Sprintf("no OSImage of this node's UpdatePool names %.200s (spec.image)", os.Image)
	}
	for _, a := range os.KernelArguments {
		if want.OS == nil || !slices.Contains(want.OS.KernelArguments, a) {
			return "no NodeConfig has the kernel argument " + strings.ToValidUTF8(fmt.Sprintf("%.100s", a), "")
		}
	}
	return ""
}
