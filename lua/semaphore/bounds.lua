-- Part: bounds. Extends the bounds on all leases to include one that ends at `ends`.
if ends < next_end then next_end, changed = ends, true end
if ends == NEVER then is_permanent = true elseif ends > latest then latest = ends end
