package nodeconfigs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
	"github.com/refit-dev/refit/internal/osimage"
	"github.com/refit-dev/refit/internal/osimage/contents"

	"github.com/refit-dev/refit/internal/pipeline/nodeconfig"
)

// poolImage is the image that a pool's nodes are to boot.
type poolImage struct {
	// image is repository@sha256:..., empty while there is none.
	image string
	// made is the configuration that the image was made with, empty if that is not
	// known.
	made model.NodeConfig
	// held: a person keeps the pool on the build of the image, so its nodes have that
	// configuration and not today's.
	held bool
	// finished: the image is prebuilt, so its kernel arguments are not ours.
	finished bool
	// live are files of a newer image that is not booted, note says so; written are paths
	// that were written over the image's at some time.
	live    []model.ConfigFile
	written []string
	note    string
}

// gatherImages reads which image every pool has. An image comes with the
// kernel arguments that it was built with, so that the two change together.
func (r *Reconciler) gatherImages(ctx context.Context, w *configSnapshot) error {
	w.images = map[string]*poolImage{}
	if !slices.ContainsFunc(w.pools, func(p v1alpha1.UpdatePool) bool { return p.Spec.OSImage != "" }) {
		return nil
	}
	var images v1alpha1.OSImageList
	var contents v1alpha1.ContentList
	if err := r.Client.List(ctx, &images); err != nil {
		return err
	}
	if err := r.Client.List(ctx, &contents, client.InNamespace(v1alpha1.NodesNamespace)); err != nil {
		return err
	}
	made := map[string]*v1alpha1.Content{}
	for i := range contents.Items {
		made[contents.Items[i].Name] = &contents.Items[i]
	}
	for i := range images.Items {
		if err := w.imagesOf(&images.Items[i], made); err != nil {
			return err
		}
	}
	return nil
}

func (w *configSnapshot) imagesOf(o *v1alpha1.OSImage, made map[string]*v1alpha1.Content) error {
	for _, p := range o.Status.Pools {
		if pool := w.pool(p.Name); pool == nil || pool.Spec.OSImage != o.Name {
			continue
		}
		image := &poolImage{image: p.Image, finished: o.Spec.Image != ""}
		w.images[p.Name] = image
		if err := image.readWrittenFiles(&p, made); err != nil {
			return err
		}
		c := made[p.Content]
		if c == nil {
			continue
		}
		config, err := osimage.OpenConfig([]byte(c.Data))
		if err != nil {
			return fmt.Errorf("content %s: %w", c.Name, err)
		}
		image.made = config
		build := w.pool(p.Name).Spec.OSBuild
		image.held = build != "" && build == p.Build
	}
	return nil
}

// poolOf is the one pool that a node is in, empty if it is in none or in two.
func (w *configSnapshot) poolOf(n *corev1.Node) string {
	found := ""
	for i := range w.pools {
		if !w.selectors.Match(&w.pools[i].Spec.NodeSelector, n.Labels) {
			continue
		}
		if found != "" {
			return ""
		}
		found = w.pools[i].Name
	}
	return found
}

func (w *configSnapshot) pool(name string) *v1alpha1.UpdatePool {
	for i := range w.pools {
		if w.pools[i].Name == name {
			return &w.pools[i]
		}
	}
	return nil
}

// Rules of a pool; nil has none.
func Rules(p *v1alpha1.UpdatePool) []osimage.Rule {
	if p == nil {
		return nil
	}
	var out []osimage.Rule
	for _, r := range p.Spec.Disruption {
		rule := osimage.Rule{Files: r.Files, Units: r.Units, SSHKeys: r.SSHKeys}
		for _, a := range r.Actions {
			rule.Actions = append(rule.Actions, osimage.Action{Type: osimage.ActionType(a.Type), Unit: a.Unit})
		}
		out = append(out, rule)
	}
	return out
}

// Assign says what changes cost by the rules of a pool, where the NodeConfigs do
// not. held is what the pool's image was built from. Without rules and OSImage the sources are as
// they were.
func Assign(p *v1alpha1.UpdatePool, held model.NodeConfig, sources []nodeconfig.Source) []nodeconfig.Source {
	if p == nil || p.Spec.OSImage == "" && len(p.Spec.Disruption) == 0 {
		return sources
	}
	rules := Rules(p)
	out := slices.Clone(sources)
	for i := range out {
		files, units := slices.Clone(out[i].Files), slices.Clone(out[i].Units)
		for j := range files {
			files[j] = osimage.AssignFile(rules, reloadsMirrors(rules, held, files[j]))
		}
		for j := range units {
			units[j].Disruption = osimage.AssignUnit(rules, units[j].Name, units[j].Disruption)
		}
		out[i].Files, out[i].Units = files, units
	}
	return out
}

// runtimeUnit reads a registries.conf again when it reloads. Other runtimes and tools read the file
// each time, or not at all; a node without the unit reloads nothing.
const runtimeUnit = "crio.service"

// reloadsMirrors has a registries.conf that only adds mirrors for digests reload the runtime, where
// neither its NodeConfig nor a rule of the pool says otherwise.
func reloadsMirrors(rules []osimage.Rule, held model.NodeConfig, f model.ConfigFile) model.ConfigFile {
	if f.Disruption != "" || len(f.Units) > 0 || f.Absent || !isRegistriesConf(f.Path) || osimage.HasRule(rules, f.Path) {
		return f
	}
	for _, h := range held.Files {
		if isSameButData(h, f) && oci.OnlyAddsMirrors(string(h.Data), string(f.Data)) {
			f.Disruption, f.Units = model.DisruptionReload, []string{runtimeUnit}
		}
	}
	return f
}

// isSameButData: both files have their data in the configuration, and differ in nothing else.
func isSameButData(a, b model.ConfigFile) bool {
	inline := !a.Absent && a.Payload+b.Payload == ""
	return inline && a.Path == b.Path && a.Mode == b.Mode && a.Owner == b.Owner && a.Group == b.Group
}

func isRegistriesConf(path string) bool {
	dir, is := strings.CutPrefix(path, "/etc/containers/registries.conf.d/")
	return path == "/etc/containers/registries.conf" || is && !strings.Contains(dir, "/") && strings.HasSuffix(dir, ".conf")
}

// ForPool reports whether a NodeConfig is for every node of a pool: what goes into
// an image is.
func ForPool(c *v1alpha1.NodeConfig, pool string) bool {
	if !c.DeletionTimestamp.IsZero() || c.Spec.NodeSelector != nil {
		return false
	}
	return len(c.Spec.Pools) == 0 || slices.Contains(c.Spec.Pools, pool)
}

// withImage adds the pool's OS image to a configuration, and says of what the image
// brings that it does: it is verified and not written.
func (w *configSnapshot) withImage(p *v1alpha1.UpdatePool, names []string, c model.NodeConfig) (model.NodeConfig, []model.Blocker) {
	if p == nil || p.Spec.OSImage == "" {
		return c, noImage(c)
	}
	if vs := w.imageBlockers(p, names); len(vs) > 0 {
		return model.NodeConfig{}, vs
	}
	image := w.images[p.Name]
	if image == nil {
		image = &poolImage{}
	}
	if image.held {
		c = image.made
	}
	wanted := c.OS
	c, vs := osimage.OnNode(c, image.made)
	if len(vs) > 0 {
		return model.NodeConfig{}, vs
	}
	if image.image == "" {
		c.OS = nil // its arguments come with the first image
		return c, nil
	}
	os := &model.ConfigOS{Image: image.image, SoftReboot: p.Spec.SoftReboot, ReadySeconds: p.Spec.OSReadySeconds}
	if image.made.OS != nil {
		os.KernelArguments = image.made.OS.KernelArguments
	}
	if image.finished && wanted != nil {
		os.KernelArguments = wanted.KernelArguments
	}
	os.Note = image.note
	c.OS, c.Version = os, model.ConfigVersion
	return image.addTo(c, contents.Rules{Pool: Rules(p)}), nil
}

// readWrittenFiles reads what agents write, or have written, over an image.
func (i *poolImage) readWrittenFiles(p *v1alpha1.OSImagePool, all map[string]*v1alpha1.Content) error {
	i.written = p.Written
	if p.Live == nil {
		return nil
	}
	c := all[p.Live.Content]
	if c == nil {
		return fmt.Errorf("content %s, with what is written over the image of pool %s, is not seen yet", p.Live.Content, p.Name)
	}
	_, was, _ := strings.Cut(p.Image, "@")
	_, is, _ := strings.Cut(p.Live.Image, "@")
	var err error
	i.live, err = contents.OpenFiles([]byte(c.Data), was, is)
	i.note = p.Live.Message
	return err
}

// addTo adds to a configuration what a newer image has otherwise in /etc, and has given
// back to the booted image what was written over it and is wanted no more. A NodeConfig
// that speaks of a path comes before.
func (i *poolImage) addTo(c model.NodeConfig, rules contents.Rules) model.NodeConfig {
	files := slices.Clone(c.Files)
	add := func(f model.ConfigFile) {
		if !slices.ContainsFunc(files, func(h model.ConfigFile) bool { return h.Path == f.Path }) {
			files = append(files, rules.Assign(f))
		}
	}
	for _, f := range i.live {
		add(f)
	}
	for _, path := range i.written {
		add(model.ConfigFile{Path: path, AsImage: true})
	}
	slices.SortFunc(files, func(a, b model.ConfigFile) int { return strings.Compare(a.Path, b.Path) })
	if slices.ContainsFunc(files, func(f model.ConfigFile) bool { return f.AsImage }) {
		c.Version = model.ConfigVersionAsImage
	}
	c.Files = files
	return c
}

// imageBlockers says what keeps the nodes of a pool from having its image.
func (w *configSnapshot) imageBlockers(p *v1alpha1.UpdatePool, names []string) []model.Blocker {
	if vs := w.perNodeBlockers(p, names); len(vs) > 0 {
		return vs
	}
	if vs := osimage.CheckRules("UpdatePool/"+p.Name, Rules(p)); len(vs) > 0 {
		return vs
	}
	if image := w.images[p.Name]; image != nil && image.held {
		return w.nodeConfigBlockers(p, names)
	}
	return nil
}

// nodeConfigBlockers: what a NodeConfig has for single nodes is not in the configuration of a
// build, and what both come to nobody has seen.
func (w *configSnapshot) nodeConfigBlockers(p *v1alpha1.UpdatePool, names []string) []model.Blocker {
	var out []model.Blocker
	for i := range w.configs {
		if c := &w.configs[i]; slices.Contains(names, c.Name) && !ForPool(c, p.Name) {
			out = append(out, model.Blocker{Reason: v1alpha1.ReasonConfigInvalid, Object: "NodeConfig/" + c.Name,
				Message: fmt.Sprintf("NodeConfig %s is for some nodes of pool %s, which is held on OSBuild %s and its configuration", c.Name, p.Name, p.Spec.OSBuild),
				Fix:     "refit rollback --pool " + p.Name + " --follow, or select by spec.pools instead of spec.nodeSelector"})
		}
	}
	return out
}

// noImage: packages have no other way to a node.
func noImage(c model.NodeConfig) []model.Blocker {
	if len(c.Packages) == 0 {
		return nil
	}
	return []model.Blocker{{Reason: v1alpha1.ReasonConfigInvalid, Message: "packages " + strings.Join(c.Packages, ", ") + " are wanted on nodes whose pool has no OSImage, and nothing installs packages on a node that runs",
		Fix: "name an OSImage in the UpdatePool, or install them another way"}}
}

// perNodeBlockers: what comes with an image is the same on every node of the pool.
func (w *configSnapshot) perNodeBlockers(p *v1alpha1.UpdatePool, names []string) []model.Blocker {
	var out []model.Blocker
	for i := range w.configs {
		c := &w.configs[i]
		if !slices.Contains(names, c.Name) || ForPool(c, p.Name) || len(c.Spec.KernelArguments)+len(c.Spec.Packages) == 0 {
			continue
		}
		out = append(out, model.Blocker{Reason: v1alpha1.ReasonConfigInvalid, Object: "NodeConfig/" + c.Name,
			Message: fmt.Sprintf("NodeConfig %s has kernel arguments or packages for some nodes of pool %s, whose nodes share the image of OSImage %s", c.Name, p.Name, p.Spec.OSImage),
			Fix:     "select by spec.pools instead of spec.nodeSelector"})
	}
	return out
}

// driftWords are the words of a configuration for a pool's actions.
var driftWords = map[v1alpha1.DriftAction]string{v1alpha1.DriftRepair: model.DriftRepair, v1alpha1.DriftIgnore: model.DriftIgnore, v1alpha1.DriftReport: model.DriftReport}

// driftRules are a pool's policies for single files and units.
func driftRules(p *v1alpha1.UpdatePool) []osimage.DriftRule {
	if p == nil {
		return nil
	}
	var out []osimage.DriftRule
	for _, r := range p.Spec.DriftRules {
		out = append(out, osimage.DriftRule{Files: r.Files, Units: r.Units, Policy: driftWords[r.Action]})
	}
	return out
}

// driftOf is a pool's policy in the words of a configuration that wants anything.
func driftOf(p *v1alpha1.UpdatePool, c model.NodeConfig) string {
	if p == nil || c.Empty() || p.Spec.Drift == v1alpha1.DriftReport {
		return ""
	}
	return driftWords[p.Spec.Drift]
}
