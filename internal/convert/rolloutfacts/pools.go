package rolloutfacts

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/rollout"
)

// Pools converts all pools, with the unavailable nodes of each. poolsOf names the pools whose
// selector matches a node. Without any UpdatePool all nodes are in one pool of the given name,
// with a budget of one.
func Pools(pools []v1alpha1.UpdatePool, nodes []*corev1.Node, poolsOf func(*corev1.Node) []string, defaultPool string) map[string]rollout.Pool {
	out := map[string]rollout.Pool{}
	unavailable, cps, cordoned, size := map[string][]string{}, map[string][]string{}, map[string][]string{}, map[string]int{}
	for _, n := range nodes {
		names := []string{defaultPool}
		if len(pools) > 0 {
			names = poolsOf(n)
		}
		for _, name := range names {
			size[name]++
			if !Unavailable(n) {
				continue
			}
			unavailable[name] = append(unavailable[name], n.Name)
			if ControlPlane(n) {
				cps[name] = append(cps[name], n.Name)
			}
			if Cordoned(n) {
				cordoned[name] = append(cordoned[name], n.Name)
			}
		}
	}
	if len(pools) == 0 {
		out[defaultPool] = rollout.Pool{Name: defaultPool, Budget: 1, Unavailable: unavailable[defaultPool], ControlPlane: cps[defaultPool], Cordoned: cordoned[defaultPool]}
	}
	for i := range pools {
		p := Pool(&pools[i], size[pools[i].Name])
		p.Unavailable, p.ControlPlane, p.Cordoned = unavailable[p.Name], cps[p.Name], cordoned[p.Name]
		out[p.Name] = p
	}
	return out
}

// PoolMatcher returns a function that names the pools whose selector matches a node.
func PoolMatcher(pools []v1alpha1.UpdatePool) func(*corev1.Node) []string {
	selectors := make([]labels.Selector, len(pools))
	for i := range pools {
		s, err := metav1.LabelSelectorAsSelector(&pools[i].Spec.NodeSelector)
		if err != nil {
			s = labels.Nothing()
		}
		selectors[i] = s
	}
	return func(n *corev1.Node) []string {
		var out []string
		for i, s := range selectors {
			if s.Matches(labels.Set(n.Labels)) {
				out = append(out, pools[i].Name)
			}
		}
		return out
	}
}

// Unavailable reports whether a node is cordoned, not Ready, or being updated.
func Unavailable(n *corev1.Node) bool {
	if n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationUpdating] != "" {
		return true
	}
	ready, _ := Ready(n)
	return !ready
}

// Cordoned reports whether a Ready node was cordoned, but not by refit.
func Cordoned(n *corev1.Node) bool {
	ready, _ := Ready(n)
	return ready && n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationUpdating] == ""
}

// Pool converts a pool with a number of nodes.
func Pool(p *v1alpha1.UpdatePool, size int) rollout.Pool {
	s := &p.Spec
	out := rollout.Pool{Name: p.Name, Budget: 1, Paused: s.Paused, DrainTimeout: seconds(s.DrainTimeoutSeconds), Soak: seconds(s.SoakSeconds),
		MaxFailures: int(s.MaxFailures), Zones: s.Zones, Attempts: s.Attempts, Undo: s.OnFailure == v1alpha1.FailureUndo, Staging: int(s.MaxStaging), OutOfBalancers: seconds(s.LoadBalancerSeconds)}
	if s.MaxUnavailable != nil {
		out.Budget = Amount(*s.MaxUnavailable).CountOf(size)
	}
	if s.Canary != nil {
		out.Canary, out.CanarySoak = Amount(s.Canary.Nodes), seconds(s.Canary.SoakSeconds)
	}
	for _, w := range s.Windows {
		rw, why := readWindow(w)
		if why != "" {
			out.Invalid = why
			continue
		}
		out.Windows = append(out.Windows, rw)
	}
	return out
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// Amount converts a number or a percentage; an invalid one is 1.
func Amount(v intstr.IntOrString) rollout.Amount {
	if v.Type == intstr.Int {
		return rollout.Amount{Value: max(1, int(v.IntVal))}
	}
	percent, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	if err != nil || percent < 1 {
		return rollout.Amount{Value: 1}
	}
	return rollout.Amount{Value: percent, Percent: true}
}

// Windows converts windows; why names the first invalid value.
func Windows(in []v1alpha1.Window) (out []rollout.Window, why string) {
	for _, w := range in {
		r, bad := readWindow(w)
		if bad != "" {
			return nil, bad
		}
		out = append(out, r)
	}
	return out, ""
}

var weekdays = map[v1alpha1.Weekday]time.Weekday{"Sun": time.Sunday, "Mon": time.Monday, "Tue": time.Tuesday, "Wed": time.Wednesday,
	"Thu": time.Thursday, "Fri": time.Friday, "Sat": time.Saturday}

// readWindow converts a window; why names an invalid value.
func readWindow(w v1alpha1.Window) (out rollout.Window, why string) {
	out.Duration = time.Duration(w.DurationMinutes) * time.Minute
	start, err := time.Parse("15:04", w.Start)
	if err != nil {
		return out, fmt.Sprintf("%q is not a time of day as HH:MM", w.Start)
	}
	out.Start = start.Hour()*60 + start.Minute()
	for _, d := range w.Days {
		day, known := weekdays[d]
		if !known {
			return out, fmt.Sprintf("%q is not a day of the week", d)
		}
		out.Days = append(out.Days, day)
	}
	out.Zone, err = time.LoadLocation(w.TimeZone) // "" is UTC
	if err != nil || w.TimeZone == "Local" {
		return out, fmt.Sprintf("there is no time zone %q", w.TimeZone)
	}
	return out, ""
}
