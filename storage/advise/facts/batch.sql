SELECT sum(bytes) / 2, 1, '' FROM held WHERE category IN ('activation', 'input')
