package osimage

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// ActionType of an action.
type ActionType string

// Types of actions.
const (
	ActionNone         ActionType = "None"
	ActionDrain        ActionType = "Drain"
	ActionDaemonReload ActionType = "DaemonReload"
	ActionReload       ActionType = "Reload"
	ActionRestart      ActionType = "Restart"
	ActionReboot       ActionType = "Reboot"
)

// Action is one thing that is done after a change; Unit is for Reload and Restart.
type Action struct {
	Type ActionType
	Unit string
}

func (a Action) String() string {
	if a.Unit == "" {
		return string(a.Type)
	}
	return string(a.Type) + " " + a.Unit
}

// Rule says what changes of some things cost.
type Rule struct {
	// Files are paths, directories (everything below), or patterns: * within a
	// name, ** over any number of directories.
	Files []string
	// Units are names or patterns.
	Units []string
	// SSHKeys: the keys of users.
	SSHKeys bool
	Actions []Action
}

// Limits of a rule and a list of them.
const (
	maxRules   = 50
	maxNames   = 50
	maxActions = 10
)

var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.@\\-]+\.(service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$`)

// CheckRules says what is wrong with the rules of object, for example UpdatePool/edge.
func CheckRules(object string, rules []Rule) []model.Blocker {
	var out []model.Blocker
	refuse := func(format string, args ...any) {
		out = append(out, model.Blocker{Reason: reasonInvalid, Object: object, Message: fmt.Sprintf(format, args...), Fix: "change spec.disruption of " + object})
	}
	if len(rules) > maxRules {
		refuse("there are %d rules, at most %d go", len(rules), maxRules)
	}
	for i, r := range rules {
		n := i + 1
		if len(r.Files)+len(r.Units) == 0 && !r.SSHKeys {
			refuse("rule %d speaks of nothing: name files, units or sshKeys", n)
		}
		if len(r.Files) > maxNames || len(r.Units) > maxNames || len(r.Actions) > maxActions {
			refuse("rule %d has %d files, %d units and %d actions; at most %d, %d and %d go", n, len(r.Files), len(r.Units), len(r.Actions), maxNames, maxNames, maxActions)
		}
		for _, why := range append(checkNames(r), checkActions(r.Actions)...) {
			refuse("rule %d: %s", n, why)
		}
	}
	return out
}

func checkNames(r Rule) []string {
	var out []string
	for _, f := range r.Files {
		if _, err := path.Match(f, ""); err != nil || !strings.HasPrefix(f, "/") || strings.Contains(f, "/../") {
			out = append(out, fmt.Sprintf("%q is no absolute path or pattern of one", f))
		}
	}
	for _, u := range r.Units {
		if _, err := path.Match(u, ""); err != nil || strings.Contains(u, "/") || u == "" {
			out = append(out, fmt.Sprintf("%q is no name of a unit or pattern of one", u))
		}
	}
	return out
}

func checkActions(actions []Action) []string {
	var out []string
	if len(actions) == 0 {
		out = append(out, "it has no action; for nothing at all say None")
	}
	for _, a := range actions {
		switch a.Type {
		case ActionNone, ActionReboot:
			if len(actions) > 1 {
				out = append(out, fmt.Sprintf("%s stands alone, there are %d actions", a.Type, len(actions)))
			}
		case ActionReload, ActionRestart:
			if !unitName.MatchString(a.Unit) {
				out = append(out, fmt.Sprintf("%s needs the name of a unit with its type, not %q", a.Type, a.Unit))
			}
		case ActionDrain, ActionDaemonReload:
		default:
			out = append(out, fmt.Sprintf("there is no action %q", a.Type))
		}
		out = append(out, needless(a)...)
	}
	return out
}

// needless is a unit where none belongs.
func needless(a Action) []string {
	if a.Unit == "" || a.Type == ActionReload || a.Type == ActionRestart {
		return nil
	}
	return []string{string(a.Type) + " has no unit"}
}

// DefaultRules are what is known of files that services read, of units and of keys.
func DefaultRules() []Rule {
	reload := func(dir, unit string) Rule {
		return Rule{Files: []string{dir}, Actions: []Action{{ActionReload, unit}}}
	}
	return []Rule{
		reload("/etc/sysctl.d", "systemd-sysctl.service"),
		reload("/etc/modules-load.d", "systemd-modules-load.service"),
		reload("/etc/tmpfiles.d", "systemd-tmpfiles-setup.service"),
		reload("/etc/sysusers.d", "systemd-sysusers.service"),
		{Files: []string{"/etc/motd", "/etc/motd.d", "/etc/issue", "/etc/issue.d"}, SSHKeys: true, Actions: []Action{{ActionNone, ""}}},
	}
}
