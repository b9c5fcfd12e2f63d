-- Modules that are entries of lists, or parts of such: blocks.0, layers.3.mlp.
SELECT id FROM module_name WHERE label GLOB '*.[0-9]*' OR label GLOB '[0-9]*' ORDER BY id
