//go:build !defects

package defect

const built = false
