//go:build !defects

package defect

var built []Name
