// Package sample is measured by the tests of mutate.
package sample

// Full is tested with each of its inputs.
func Full(n int) string {
	if n > 2 {
		return "high"
	}
	return "low"
}

const most = 2

// Half is tested without the case in which only b is true.
func Half(a, b bool) bool {
	return a && b
}

// Same has a mutant that changes nothing.
func Same(n int) int { return min(n, most*1) }
