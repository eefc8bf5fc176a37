package nodefiles

import (
	"fmt"
	"os/user"
	"strconv"
)

// UserID and GroupID are the numbers behind a name or a number of this node.
func UserID(name string) (int, error) {
	if n, err := strconv.Atoi(name); err == nil {
		return n, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("this node has no user %q", name)
	}
	return strconv.Atoi(u.Uid)
}

// GroupID is the number behind a group.
func GroupID(name string) (int, error) {
	if n, err := strconv.Atoi(name); err == nil {
		return n, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("this node has no group %q", name)
	}
	return strconv.Atoi(g.Gid)
}
