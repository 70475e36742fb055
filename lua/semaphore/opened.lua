  -- Part: what the function that `open` began returns: one mutex, and what ARGV[1] has of it. It has read everything, and
  -- written nothing.
  local id = ARGV[1]
  local fence, permits = holding(record)
  local ends = fence and call('ZSCORE', holders, id)
  local is_held = ends and tonumber(ends) > now
  local lock = {save = save, is_held = is_held, fence = fence, ends = is_held and as_time(ends)}

  -- Brings it up to now, and tells whether the id has it or can have it. Whoever waits comes first.
  function lock.is_free()
    if is_held then return true end
    local before = limit
    if limit == 0 then limit = 1 end
    if fence and agreed then free({id}, permits - 1) end -- what its ended lease still occupies
    settle()
    if record and not fence then
      leave_queue(id)
      call('HDEL', meta, id)
    end
    if waiting > 0 then serve() end
    local mine = waiting == 0 and in_use < limit
    if mine then limit = before end -- only a grant stores it
    return mine
  end

  function lock.take(lease_ms)
    if is_held then return end
    limit = math.max(limit, 1)
    next_number()
    grant(id, 1, lease_ms)
    lock.fence, lock.ends = last_fence, lease_ms == 0 and -1 or now + lease_ms
  end

  function lock.give_back()
    free({id}, permits - 1)
    settle()
    if not closed then
      expire_again()
      serve()
    end
  end

  function lock.denial(place)
    return {'denied', place, ask_again(), used(), limit, waiting, now}
  end

  return lock
end
